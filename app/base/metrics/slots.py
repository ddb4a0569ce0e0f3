"""The numbers of several server processes that share a port: whichever is scraped answers for all of them.

Each has a slot and writes its numbers to `<folder>/<slot>.metrics`: every second if they changed, and before it answers
a scrape. A process that is started again in a slot goes on from what the one before it wrote. As nothing is ever shown
that was not written before, no counter goes back, however a process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from app import __version__
from app.base.loops import Loop
from app.base.metrics import catalogue
from app.base.metrics.catalogue import FAMILIES, Family, Merge
from app.base.metrics.numbers import MOST_TOPICS, Counter, Histogram, Labels, Numbers

WRITE_SECONDS: Final = 1.0
SUFFIX: Final = ".metrics"

log = logging.getLogger(__name__)


class _Written(msgspec.Struct):
    """What a file holds. `pid` is 0 once the process has ended in order; its levels count while it lives."""

    pid: int
    levels: list[tuple[str, Labels, float]]
    counters: dict[str, dict[Labels, Counter]]
    histograms: dict[str, dict[Labels, Histogram]]


_decoder = msgspec.msgpack.Decoder(_Written)


class Merged(msgspec.Struct):
    """What all processes have counted, and what is the case in those that live. By metric and labels."""

    counters: dict[str, dict[Labels, float]] = msgspec.field(default_factory=dict)
    histograms: dict[str, dict[Labels, Histogram]] = msgspec.field(default_factory=dict)
    levels: dict[str, dict[Labels, float]] = msgspec.field(default_factory=dict)

    def level(self, family: Family, labels: Labels, value: float) -> None:
        """Bring a gauge in, as its metric says."""
        known = self.levels.setdefault(family.name, {})
        if labels not in known:
            known[labels] = value
        elif family.merge is Merge.SUM:
            known[labels] += value
        else:
            known[labels] = (max if family.merge is Merge.MOST else min)(known[labels], value)

    def total(self, family: Family, labels: Labels, value: float) -> None:
        """Bring a counter in that no process keeps."""
        self.counters.setdefault(family.name, {})[labels] = value


class Metrics(Numbers):
    """The numbers of the process in a slot. Without a folder it is the only one, and nothing is written.

    `folder` has to be this service's own, new at its start. Raises OSError where it can't be read.
    """

    def __init__(self, slot: int = 0, folder: Path | None = None, *, most_topics: int = MOST_TOPICS) -> None:
        super().__init__(most_topics)
        self._slot = str(slot)
        self._folder = folder
        self._started = time.time()
        self._last = b""
        self._lock = asyncio.Lock()
        self._loop = Loop(f"write metrics to {folder}", self._write, WRITE_SECONDS)
        self.levels.append(self._process)
        if folder is not None and (former := _read(folder / (self._slot + SUFFIX))) is not None:
            self._go_on_from(former)

    def start(self) -> None:
        """Start writing, if there is anybody to write for."""
        if self._folder is not None:
            self._loop.start()

    async def stop(self) -> None:
        """Stop it. What was counted stays for who comes after."""
        await self._loop.stop()
        with contextlib.suppress(OSError):
            await self._write(ended=True)

    async def merged(self) -> Merged:
        """This process's numbers as they are, and the others' as they last wrote them."""
        try:
            await self._write()
        except OSError as error:
            log.warning("can't write metrics to %s: %r", self._folder, error)
        # Encoding is a copy, and the fastest: with a thousand topics everything else is too slow for the event loop.
        content = msgspec.msgpack.encode(self._written())
        return await asyncio.to_thread(_gather, content, self._folder, self._slot)

    def _written(self, *, ended: bool = False) -> _Written:
        levels = [] if ended else [(f.name, labels, value) for ask in self.levels for f, labels, value in ask()]
        return _Written(0 if ended else os.getpid(), levels, self.counters, self.histograms)

    async def _write(self, *, ended: bool = False) -> None:
        if self._folder is None:
            return
        async with self._lock:
            content = msgspec.msgpack.encode(self._written(ended=ended))
            if content != self._last:
                await asyncio.to_thread(_replace, self._folder / (self._slot + SUFFIX), content)
                self._last = content

    def _go_on_from(self, former: _Written) -> None:
        for name, counters in former.counters.items():
            if name in FAMILIES:
                self.counters[name] = counters
        for name, histograms in former.histograms.items():
            if name in FAMILIES:
                fitting = {labels: one for labels, one in histograms.items() if _fits(FAMILIES[name], one)}
                self.histograms[name] = fitting
        for (topic,) in list(self.counters.get(catalogue.TOPIC_ENQUEUED.name, {})):
            self.topic(topic)

    def _process(self) -> Iterable[tuple[Family, Labels, float]]:
        yield catalogue.BUILD, (__version__, platform.python_version()), 1
        yield catalogue.START, (self._slot,), round(self._started, 3)
        yield catalogue.CPU, (self._slot,), round(time.process_time(), 1)
        with contextlib.suppress(OSError, AttributeError):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            yield catalogue.RESIDENT, (self._slot,), pages * os.sysconf("SC_PAGE_SIZE")


def _gather(content: bytes, folder: Path | None, slot: str) -> Merged:
    others = []
    try:
        others = [] if folder is None else _others(folder, slot)
    except OSError as error:
        log.warning("metrics are of this process alone: %r", error)
    return _merge([_decoder.decode(content), *others])


def _merge(parts: list[_Written]) -> Merged:
    merged = Merged()
    processes = 0
    for i, part in enumerate(parts):
        for name, counters in part.counters.items():
            sums = merged.counters.setdefault(name, {})
            for labels, counter in counters.items():
                sums[labels] = sums.get(labels, 0) + counter.value
        for name, histograms in part.histograms.items():
            if name in FAMILIES:
                _add(merged.histograms.setdefault(name, {}), histograms, FAMILIES[name])
        if i == 0 or _lives(part.pid):
            processes += 1
            for name, labels, value in part.levels:
                if name in FAMILIES:
                    merged.level(FAMILIES[name], labels, value)
    now = time.time()
    for labels, started in merged.levels.get(catalogue.START.name, {}).items():
        merged.level(catalogue.UPTIME, labels, now - started)
    merged.level(catalogue.PROCESSES, (), processes)
    return merged


def _add(wholes: dict[Labels, Histogram], parts: dict[Labels, Histogram], family: Family) -> None:
    for labels, part in parts.items():
        whole = wholes.get(labels)
        if not _fits(family, part):
            continue
        if whole is None:
            wholes[labels] = part
        else:
            whole.counts = [a + b for a, b in zip(whole.counts, part.counts, strict=True)]
            whole.sum += part.sum


def _fits(family: Family, histogram: Histogram) -> bool:
    """Whether it was counted by the same bounds: another version may have others."""
    scaled = tuple(bound * family.scale for bound in family.bounds)
    return histogram.bounds == scaled and len(histogram.counts) == len(scaled) + 1


def _others(folder: Path, slot: str) -> list[_Written]:
    paths = [path for path in sorted(folder.glob("*" + SUFFIX)) if path.name != slot + SUFFIX]
    return [written for path in paths if (written := _read(path)) is not None]


def _read(path: Path) -> _Written | None:
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        log.warning("%s holds no metrics: %s", path, error)
        return None


def _replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def _lives(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
