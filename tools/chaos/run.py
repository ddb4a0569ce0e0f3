"""A whole run: rounds on one system, and what is told of them while they go on and afterwards."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.chaos import report
from tools.chaos.faults import FAULTS, GONE, Fault
from tools.chaos.measure import Sample, sample, slowness
from tools.chaos.nemesis import CALM, PAIRS
from tools.chaos.round import Asked, Told, play
from tools.chaos.system import ROOT, System

ROUND_SECONDS: Final = 150.0
SHOWN: Final = 20  # faults that a terminal has


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds` of faults, of these `kinds` among `faults`, in rounds of `round_seconds` at most, and in each of them
    until each kind has come, with `until_each`. `calm` and `pairs` are of nemesis.plan. `every` so many seconds it is
    measured, 0: between rounds only. `folder` None: var/chaos/<seed>. `build` makes what is put under stress, of a
    folder, a tree and dice."""

    seed: int
    seconds: float
    kinds: Sequence[str]
    root: Path = ROOT
    round_seconds: float = ROUND_SECONDS
    folder: Path | None = None
    build: Callable[[Path, Path, random.Random], System] = System
    faults: Mapping[str, Fault] = field(default_factory=lambda: FAULTS)
    calm: tuple[float, float] = CALM
    pairs: float = PAIRS
    until_each: bool = True
    every: float = 0.0
    told: Callable[[str], None] = lambda line: print(line, flush=True)


@dataclass(slots=True)
class Run:
    """What came of it."""

    seed: int
    folder: Path
    patience: float
    rounds: list[Told] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    watched: list[Sample] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


async def run(options: Options) -> Run:
    """The faults found are printed as they are, and the report is in the folder."""
    folder = options.folder or ROOT / "var/chaos" / str(options.seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    done = Run(options.seed, folder, slowness())
    say = options.told
    say(f"seed {options.seed}, {options.seconds:.0f} s of faults; {folder}")
    system = options.build(folder, options.root, random.Random(f"{options.seed} proxies"))
    began = time.monotonic()

    def tell(line: str) -> None:
        say(f"{time.monotonic() - began:7.1f}  {line}")

    ids = itertools.count(1)
    left = options.seconds
    watching: asyncio.Task[None] | None = None
    try:
        await system.start()
        done.samples.append(await sample(system))
        watching = asyncio.create_task(_watch(system, options.every, done.watched))
        for number in itertools.count(1):
            seconds = min(left, options.round_seconds)
            asked = Asked(
                number,
                options.seed,
                seconds,
                options.kinds,
                options.faults,
                options.calm,
                options.pairs,
                options.until_each,
                done.patience,
                tell,
            )
            told = await play(system, folder / f"round{number}", asked, ids)
            left -= seconds
            done.rounds.append(told)
            done.faults += [f"round {number}: {fault}" for fault in told.faults]
            done.samples.append(await sample(system))
            report.write(done)  # of what there is so far, should somebody end it
            tell(f"round {number}: {told.sums['deliveries']} deliveries, {len(told.faults)} faults")
            for fault in told.faults[:SHOWN]:
                say(fault)
            if left < 1:
                break
            if not told.faults:
                shutil.rmtree(folder / f"round{number}")  # the last one stays until the end has been looked at
    finally:
        if watching is not None:
            watching.cancel()
        codes = await system.stop()
        if any(codes):
            done.faults.append(f"the services ended with {codes}")
    done.faults += await asyncio.to_thread(_checksums, system)
    report.write(done)
    say(report.table(done))
    if not done.faults:
        for path in (*folder.glob("round*"), *system.data):
            shutil.rmtree(path)
    return done


async def _watch(system: System, seconds: float, samples: list[Sample]) -> None:
    """Measure again and again, but for when the database is away."""
    while seconds:
        await asyncio.sleep(seconds)
        with suppress(*GONE):
            samples.append(await sample(system))


def _checksums(system: System) -> list[str]:
    """What is wrong with the pages of the database, which has been stopped."""
    cluster = system.postgres.cluster
    command: list[str | Path] = [cluster.programs.bindir / "pg_checksums", "--check", "-D", cluster.data]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if found.returncode == 0 else [f"pg_checksums: {line}" for line in found.stderr.splitlines()]
