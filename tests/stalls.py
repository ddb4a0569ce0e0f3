"""When a test that failed is run again: where the machine stood still, or a browser had a mood.

A shared machine stands still for seconds now and then: a virtual one is paused, or its processors are somebody else's.
Leases end meanwhile, streams count as slow, and what was to happen at once did not. So a test that fails in a run with
pauses, which a thread sees as beats that come late, has not failed yet: it is run again, and the summary names it. What
is slow itself, or waits, lets the beats go on, and has failed.

A browser is a program of many processes, whose timing nobody here can mend. A test of pages that fails is run once
more, a few of a run; the summary names it too. No other test is: what fails once there, and not again, is a race to be
found.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

BEAT_SECONDS: Final = 0.01
LATE_SECONDS: Final = 0.05  # more than the interpreter's switch between threads takes
PAUSED_SECONDS: Final = 0.3  # in all, from which on a failure may come of it
RUNS: Final = 3
STILL: Final = "failed while the machine stood still"
MOOD: Final = "failed once in a browser"
BROWSER: Final = "browser"  # the fixture that all pages come of
MOST_MOODS: Final = 2  # of a process; with more it is the pages

STEPS: Final = 2_000_000
STEPS_SECONDS: Final = 0.065  # how long they take on the machine that bounds of time are for
SLOWEST: Final = 2.0


def slowness() -> float:
    """How many times as long as on that machine the same work takes here now: 1 to SLOWEST. A test that stretches a
    bound by it prints both, the bound and what was allowed: docs/reliability.md promises the bound."""
    took = []
    for _ in range(3):
        began = time.perf_counter()
        count = 0
        for step in range(STEPS):
            count += step
        took.append(time.perf_counter() - began)
    return min(max(min(took) / STEPS_SECONDS, 1.0), SLOWEST)


class Pulse(threading.Thread):
    """Beats until the process ends."""

    def __init__(self) -> None:
        super().__init__(name="pulse", daemon=True)
        self._pauses: deque[tuple[float, float]] = deque(maxlen=10_000)  # from, to

    def run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(BEAT_SECONDS)
            now = time.monotonic()
            if now - last > BEAT_SECONDS + LATE_SECONDS:
                self._pauses.append((last, now - BEAT_SECONDS))
            last = now

    def paused(self, began: float) -> float:
        """For how many seconds since then, of time.monotonic(), the machine stood still."""
        time.sleep(2 * BEAT_SECONDS)  # a beat that was late has been told by then
        return sum(end - max(start, began) for start, end in [*self._pauses] if end > began)


class Plugin:
    """Runs tests, again where need be."""

    def __init__(self) -> None:
        self._pulse = Pulse()
        self._pulse.start()
        self._moods = 0

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = self._reports(item, nextitem)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.TestReport]:
        for _ in range(RUNS - 1):
            began = time.monotonic()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            excuse = self._excuse(item, began) if any(report.failed for report in reports) else None
            if excuse is None:
                return reports
            item.user_properties.append((excuse, item.nodeid))
            item._initrequest()  # type: ignore[attr-defined]
        return runtestprotocol(item, log=False, nextitem=nextitem)

    def _excuse(self, item: pytest.Item, began: float) -> str | None:
        """What a test that has failed may be run again for."""
        if self._pulse.paused(began) >= PAUSED_SECONDS:
            return STILL
        if BROWSER not in getattr(item, "fixturenames", ()) or (MOOD, item.nodeid) in item.user_properties:
            return None
        self._moods += 1
        return MOOD if self._moods <= MOST_MOODS else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for excuse in (STILL, MOOD):
            again = {
                str(value)
                for reports in terminalreporter.stats.values()
                for report in reports
                if isinstance(report, pytest.TestReport)
                for name, value in report.user_properties
                if name == excuse
            }
            if again:
                terminalreporter.section(f"{len(again)} {excuse}, and were run again")
                for name in sorted(again):
                    terminalreporter.line(name)
