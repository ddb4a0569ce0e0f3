"""The schedule of the delete reaper: one for all processes, and one run for each time that it is due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base import cron
from app.base.db.pool import Pools
from app.base.pace import Pace
from app.errors import InvalidSchedule
from app.features.feature import Sweep
from app.features.upkeep import runs
from app.features.upkeep.reapers import CronSchedule
from app.features.upkeep.runner import Runner, RunTimes
from app.kernel.audit.trail import OPEN, Actor
from app.kernel.engine import Engine
from tests.engine.machines import Hook, new_machine
from tests.queue.calls import until
from tests.reapers.test_runs import DEAD, PATIENT, QUICK

BY = Actor(OPEN)
ALWAYS = "* * * * *"


class Counted:
    """A sweep that counts its runs, and schedules of it as several processes have them."""

    def __init__(self, name: str, own: Pools) -> None:
        self.name = name
        self.runs = 0
        self._own = own
        self._runners: list[Runner] = []

    async def run(self, _pools: Pools, _engine: Engine, _pace: Pace) -> int:
        self.runs += 1
        return 0

    def process(
        self, default: str = "", before_it_begins: Hook | None = None, times: RunTimes = PATIENT
    ) -> CronSchedule:
        machine = new_machine(self._own)
        if before_it_begins is not None:
            machine.log.before["begin_run"] = before_it_begins
        self._runners.append(Runner(machine.pools, machine.engine, times))
        made = CronSchedule(machine.pools, self._runners[-1], Sweep(self.name, self.run, None))
        made.default = default
        return made

    async def minutes_pass(self, minutes: int = 2) -> None:
        """As if nobody had looked for so long."""
        query = "UPDATE holdfast.sweeps SET due_after = clock_timestamp() - $2 * interval '1 min' WHERE name = $1"
        await self._own.rest.execute(query, self.name, minutes)

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.stop()


@pytest.fixture
async def counted(topic: str, own: Pools) -> AsyncIterator[Counted]:
    made = Counted(topic, own)
    yield made
    await made.stop()


async def test_it_is_the_same_for_every_process(counted: Counted) -> None:
    one, other = counted.process(default="0 3 * * *"), counted.process(default="0 3 * * *")
    assert await one.get() == "0 3 * * *"
    assert await one.set("  30 4 *  * mon ", BY) == "30 4 * * mon"
    assert await other.get() == "30 4 * * mon"
    assert await other.set("", BY) == ""
    assert await one.get() == "", "none, and not the default"


async def test_a_due_time_is_run_once_over_all_processes(counted: Counted) -> None:
    fleet = [counted.process() for _ in range(4)]
    await fleet[0].set(ALWAYS, BY)
    await asyncio.gather(*(process.look() for process in fleet))
    assert counted.runs == 0, "it counts from when it was set"
    for expected in (1, 2):
        await counted.minutes_pass(90)
        await asyncio.gather(*(process.look() for process in fleet))
        await asyncio.gather(*(process.look() for process in fleet))
        assert counted.runs == expected


async def test_who_comes_second_to_a_due_time_leaves_it(counted: Counted) -> None:
    """Both have seen that it is due; the first has run it to its end before the second begins."""
    first = counted.process(default=ALWAYS)
    await first.look()
    await counted.minutes_pass()

    async def overtaken() -> None:
        assert counted.runs == 0
        await first.look()
        assert counted.runs == 1

    await counted.process(ALWAYS, overtaken).look()
    assert counted.runs == 1


async def test_it_waits_for_a_run_that_is_under_way(counted: Counted, own: Pools) -> None:
    """A restart neither repeats nor loses a due time."""
    await counted.process(default=ALWAYS).look()
    await counted.minutes_pass()
    process, other = counted.process(default=ALWAYS), uuid4()
    assert await runs.begin(own.rest, counted.name, other, dead=DEAD) is not None
    await process.look()
    assert counted.runs == 0
    await runs.end(own.rest, counted.name, other, 0)
    await process.look()
    await counted.process(default=ALWAYS).look()
    assert counted.runs == 1


async def test_a_run_whose_process_died_is_gone_on_with(counted: Counted, own: Pools) -> None:
    process = counted.process(times=QUICK)
    await process.look()
    assert await runs.begin(own.rest, counted.name, uuid4(), dead=DEAD) is not None

    async def done() -> bool:
        await process.look()
        return counted.runs == 1

    await until(done, "it was taken over")
    await process.look()
    assert counted.runs == 1


async def test_setting_what_it_was_changes_nothing(counted: Counted, own: Pools) -> None:
    process = counted.process(default=ALWAYS)
    await process.look()
    await counted.minutes_pass()
    await process.set(ALWAYS, BY)
    await process.look()
    assert counted.runs == 1, "what was due stays due"
    await counted.minutes_pass()
    await process.set("*/2 * * * *", BY)
    await process.look()
    assert counted.runs == 1, "of another schedule no time has come yet"
    query = "SELECT detail FROM holdfast.audit WHERE subject = $1 AND action = 'schedule.changed'"
    assert [row["detail"] for row in await own.rest.fetch(query, counted.name)] == [
        '{"schedule":{"from":"* * * * *","to":"*/2 * * * *"}}'
    ]


async def test_it_follows_a_change_at_once(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here; elsewhere after a look, which is every five seconds."""
    looked: list[float] = []
    look = CronSchedule.look

    async def noting(schedule: CronSchedule) -> float:
        looked.append(await look(schedule))
        return looked[-1]

    monkeypatch.setattr(CronSchedule, "look", noting)
    process = counted.process()
    process.loop.start()

    async def has_looked() -> bool:
        return len(looked) == 1

    await until(has_looked, "the first look")
    await process.set(ALWAYS, BY)

    async def again() -> bool:
        return len(looked) == 2

    await until(again, "another", seconds=4)
    await process.loop.stop()
    assert looked[0] == 5.0
    assert 0 < looked[1] <= 5.0


async def test_nonsense_is_refused(counted: Counted) -> None:
    process = counted.process(default=ALWAYS)
    for text in ("* * * *", "* * * * * *", "@daily", "61 * * * *", "0 0 30 2 *", "a b c d e", "* * * * \0", "1 " * 200):
        with pytest.raises(InvalidSchedule):
            await process.set(text, BY)
    assert await process.get() == ALWAYS


@settings(max_examples=25)
@given(st.lists(st.text("0123456789*/,-#LWMON ", max_size=6), min_size=5, max_size=5).map(" ".join) | st.text())
def test_a_text_is_a_schedule_or_says_why_not(text: str) -> None:
    try:
        expression = cron.parse(text)
    except ValueError:
        return
    assert cron.parse(expression) == expression
    now = datetime(2026, 3, 29, 1, 30, 5, 7, tzinfo=UTC)
    last, following = cron.last_due(expression, now), cron.next_due(expression, now)
    assert last is None or last <= now
    assert following is None or following > now
    assert expression or (last, following) == (None, None)


def test_when_it_is_due() -> None:
    at = datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC)
    assert cron.next_due("0 0 29 2 *", at) == datetime(2028, 2, 29, tzinfo=UTC)
    assert cron.last_due("0 0 29 2 *", at) == datetime(2024, 2, 29, tzinfo=UTC)
    assert cron.next_due("30 3 * * mon", at) == datetime(2026, 3, 2, 3, 30, tzinfo=UTC)
    assert cron.next_due("", at) is None
