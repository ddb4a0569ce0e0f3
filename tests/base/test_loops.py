"""The one loop of background work, on a real event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from app.base.loops import REST, Loop
from app.errors import Unavailable

TICK = 0.01
NEVER = 3600.0


class Passes:
    """What a loop does here: to answer or raise one thing after the other, and then to rest."""

    def __init__(self, *ends: float | Exception | None) -> None:
        self.times: list[float] = []
        self.logged: list[logging.LogRecord] = []
        self._ends = list(ends)

    async def once(self) -> float | None:
        self.times.append(time.monotonic())
        await asyncio.sleep(0)
        end = self._ends.pop(0) if self._ends else REST
        if isinstance(end, Exception):
            raise end
        return end

    async def made(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.times) < count:
                await asyncio.sleep(TICK / 10)

    @property
    def pauses(self) -> list[float]:
        return [b - a for a, b in zip(self.times, self.times[1:], strict=False)]


@pytest.fixture
def running() -> Any:
    """Make a loop and start it; all are stopped in the end."""
    loops: list[Loop] = []

    def start(once: Callable[[], Any], every: float = REST, **options: Any) -> Loop:
        loops.append(Loop("look", once, every, **options))
        loops[-1].start()
        return loops[-1]

    yield start
    assert not [task for loop in loops if (task := loop._task) is not None and not task.done()]


async def test_passes_come_every_so_often_or_when_they_ask_for_the_next(running: Any) -> None:
    passes = Passes(None, 5 * TICK, None, NEVER)
    loop = running(passes.once, TICK, first=3 * TICK)
    began = time.monotonic()
    await passes.made(4)
    await loop.stop()
    assert passes.times[0] - began > 2 * TICK
    assert passes.pauses[0] >= TICK
    assert passes.pauses[1] >= 5 * TICK


async def test_jitter_makes_pauses_shorter_by_its_part_at_most(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = list[tuple[float, float]]()

    def most(low: float, high: float) -> float:
        parts.append((low, high))
        return high

    monkeypatch.setattr("app.base.loops.random.uniform", most)
    passes = Passes(None, None)
    loop = running(passes.once, NEVER, jitter=0.999_999)
    await passes.made(3)
    await loop.stop()
    assert parts.count((0, 0.999_999)) >= 2, "others' loops go on meanwhile"


async def test_who_wakes_it_has_the_next_pass_sooner(running: Any) -> None:
    passes = Passes(NEVER, NEVER, NEVER)
    loop = running(passes.once, NEVER)
    loop.start()  # it runs already
    await passes.made(1)
    loop.wake()
    await passes.made(2)
    loop.wake(5 * TICK)
    loop.wake(NEVER)  # later than what is asked for already
    await passes.made(3)
    await loop.stop()
    assert passes.pauses[1] >= 5 * TICK
    loop.start()  # it was stopped for good
    loop.wake()
    await asyncio.sleep(3 * TICK)
    assert len(passes.times) == 3


async def test_one_that_is_woken_in_the_middle_of_a_pass_makes_another(running: Any) -> None:
    made = 0

    async def once() -> float:
        nonlocal made
        made += 1
        if made == 1:
            loop.wake()
        await asyncio.sleep(0)
        return REST

    loop: Loop = running(once, NEVER)
    async with asyncio.timeout(10):
        while made < 2:
            await asyncio.sleep(TICK / 10)
    await loop.stop()


async def test_one_that_rests_goes_on_when_it_is_woken_or_started_again(running: Any) -> None:
    passes = Passes()
    loop = running(passes.once, first=TICK)
    await passes.made(1)
    await asyncio.sleep(3 * TICK)
    assert len(passes.times) == 1
    loop.start()
    await passes.made(2)
    loop.wake()
    await passes.made(3)
    await loop.stop()
    assert passes.pauses[0] > 3 * TICK


@pytest.mark.parametrize(
    ("ends", "options"), [((), {"gap": 3 * TICK}), ((OSError(), ZeroDivisionError()), {"retry": 3 * TICK})]
)
async def test_however_often_it_is_woken_there_is_a_gap_and_one_that_failed_waits_for_its_retry(
    running: Any, ends: tuple[Exception, ...], options: dict[str, float]
) -> None:
    passes = Passes(*ends)
    loop = running(passes.once, **options)
    async with asyncio.timeout(10):
        while len(passes.times) < 3:
            loop.wake()
            await asyncio.sleep(TICK / 10)
    await loop.stop()
    assert min(passes.pauses) >= 3 * TICK


async def test_one_that_is_started_in_the_middle_of_a_pass_keeps_its_pace_and_does_not_rest(running: Any) -> None:
    passes, loops = Passes(None, None), list[Loop]()

    async def once() -> float | None:
        if len(passes.times) < 3:
            loops[0].start()
        return await passes.once()

    loops.append(running(once, 5 * TICK))
    await passes.made(4)  # the third would have been the last
    await asyncio.sleep(10 * TICK)
    assert len(passes.times) == 4
    assert min(passes.pauses[:2]) >= 5 * TICK
    await loops[0].stop()


async def test_stopping_cancels_a_pass_and_waits_for_its_end(running: Any) -> None:
    begun, ended = asyncio.Event(), False

    async def once() -> None:
        nonlocal ended
        begun.set()
        try:
            await asyncio.sleep(NEVER)
        finally:
            await asyncio.sleep(TICK)
            ended = True

    loop = running(once, TICK)
    await begun.wait()
    await loop.stop()
    assert ended


async def test_what_passes_is_said_once_tried_again_sooner_and_said_when_it_is_over(
    running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    passes = Passes(OSError(111, "refused"), TimeoutError(), Unavailable("full"), TICK)
    with caplog.at_level(logging.INFO, "app.base.loops"):
        loop = running(passes.once, NEVER, retry=TICK)
        await passes.made(5)
        await loop.stop()
    assert caplog.messages == ["can't look right now: ConnectionRefusedError(111, 'refused')", "can look again"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_database_that_is_there_and_busy_is_told_from_one_that_is_away(
    running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    passes = Passes(OSError(), asyncpg.QueryCanceledError("statement timeout"), asyncpg.LockNotAvailableError("lock"))
    loop = running(passes.once, NEVER, retry=TICK)
    await passes.made(4)
    await loop.stop()
    assert caplog.messages == [
        "can't look right now: OSError()",
        "can't look: the database is too slow: QueryCanceledError('statement timeout')",
    ]


async def test_what_else_may_pass_is_the_callers_word(running: Any, caplog: pytest.LogCaptureFixture) -> None:
    passes = Passes(LookupError("no"))
    loop = running(passes.once, TICK, passing=(LookupError,))
    await passes.made(2)
    await loop.stop()
    assert caplog.messages == ["can't look right now: LookupError('no')"]


async def test_a_fault_of_its_own_is_logged_with_its_traceback_and_ends_nothing(
    running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    passes = Passes(ZeroDivisionError(), ZeroDivisionError())
    loop = running(passes.once, TICK)
    await passes.made(3)
    await loop.stop()
    assert caplog.messages == ["can't look"] * 2
    assert all(record.exc_info is not None for record in caplog.records)
