"""Where days are kept as files: one that is due stays until it is, and goes then."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.base.metrics import catalogue
from app.features.archive import archive
from app.features.upkeep import sweeps
from app.kernel.counts.levels import Levels
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, new_machine
from tests.queue.calls import batch, put
from tests.reapers.days import days_ago
from tests.reapers.test_archive import HOUR, age, complete, left, past_days, too_old
from tests.reapers.test_partitions import days
from tests.reapers.test_results import _hand_in

Make = Callable[..., Awaitable[Policy]]


@pytest.fixture
async def keeping(own: Pools) -> Machine:
    """A service that keeps days as files."""
    return new_machine(own, to_files=True)


async def mark(own: Pools, table: str, ago: int) -> None:
    """As the pipeline does at the end (tests/spark/test_archive.py)."""
    await own.rest.execute(
        "INSERT INTO holdfast.archived_days (of_table, day, rows, checksum, location)"
        " VALUES ($1, (now() AT TIME ZONE 'UTC')::date - $2::integer, 1, 1, 'file:/there')",
        table,
        ago,
    )


@pytest.fixture(autouse=True)
async def unmarked(own: Pools) -> None:
    """Other tests' days have no marks, and are gone."""
    await own.rest.execute("DELETE FROM holdfast.archived_days")
    for table in ("lease_events", "results", "archive"):
        await own.rest.fetchval("SELECT holdfast.drop_day_partitions($1, 0, false)", table)


async def test_a_day_of_events_stays_until_it_is_in_files(
    own: Pools, machine: Machine, make: Make, keeping: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    policy = await make("q", event_ttl_ms=24 * HOUR)
    await put(own.rest, policy, batch())
    await days_ago(own, 4, "lease_events", "at")
    with caplog.at_level(logging.WARNING):
        await sweeps.retention(keeping.pools, keeping.engine)
    assert -4 in await days(own), "due, and not in files"
    assert "days of lease_events that are due to be dropped, but are not in files yet: 1" in caplog.text
    await mark(own, "lease_events", 5)
    await mark(own, "results", 4)
    await sweeps.retention(keeping.pools, keeping.engine)
    assert -4 in await days(own), "another day is in files, and another table's"
    await mark(own, "lease_events", 4)
    assert await sweeps.retention(keeping.pools, keeping.engine) == 1
    assert -4 not in await days(own)

    await put(own.rest, policy, batch())
    await days_ago(own, 6, "lease_events", "at")
    assert await sweeps.retention(machine.pools, machine.engine) == 1, "who keeps no files drops what is due"


async def test_a_day_of_events_that_is_in_files_and_not_due_stays(own: Pools, make: Make, keeping: Machine) -> None:
    policy = await make("q", event_ttl_ms=0)
    await put(own.rest, policy, batch())
    await days_ago(own, 4, "lease_events", "at")
    await mark(own, "lease_events", 4)
    assert await sweeps.retention(keeping.pools, keeping.engine) == 0
    assert -4 in await days(own)


async def test_a_day_of_results_stays_until_it_is_in_files(
    own: Pools, machine: Machine, make: Make, keeping: Machine
) -> None:
    policy = await make("q", result_ttl_ms=0)
    await _hand_in(machine, policy, "1")
    await days_ago(own, 3, "results", "completed_at")
    await mark(own, "results", 3)
    await sweeps.retention(keeping.pools, keeping.engine)
    assert -3 in await days(own, "results"), "in files, and shown for ever"
    await store.delete(own.rest, "q", if_empty=False)
    await own.rest.execute("DELETE FROM holdfast.archived_days")
    await sweeps.retention(keeping.pools, keeping.engine)
    assert -3 in await days(own, "results"), "not shown, and not in files"
    await mark(own, "results", 3)
    await sweeps.retention(keeping.pools, keeping.engine)
    assert -3 not in await days(own, "results")


async def test_a_day_of_the_archive_and_its_rows_stay_until_it_is_in_files(
    own: Pools, machine: Machine, make: Make, keeping: Machine
) -> None:
    await past_days(own.rest, 4)
    brief, week = await make("b", replayable=True, replay_window_ms=1), await make("w", replayable=True)
    for policy in (brief, week):
        await age(own, policy, 4, 5)
        await age(own, policy, 3, 3)
        await age(own, policy, 1, 2)
    await complete(machine, brief, 7)
    await too_old(own, brief)
    assert await archive.sweep(keeping.pools, keeping.engine) == 0, "all is past its window, and nothing in files"
    for ago in (4, 3):
        await mark(own, "archive", ago)
    assert await archive.sweep(keeping.pools, keeping.engine) == 5 + 3, "rows of days in files go; days are kept longer"
    assert [await left(own, policy) for policy in (brief, week)] == [2 + 7, 10]
    await store.delete(own.rest, "b", if_empty=False)
    assert await archive.sweep(keeping.pools, keeping.engine) == 2 + 7, (
        "what a deleted topic has left waits for nothing"
    )
    await make("w", replayable=True, replay_window_ms=24 * HOUR)
    # Days before the day before yesterday are due: both are in files.
    assert await archive.sweep(keeping.pools, keeping.engine) == 5 + 3
    assert [day for day in await days(own, "archive") if day < 0] == [-2, -1]


async def test_days_that_are_not_in_files_are_counted(
    own: Pools, machine: Machine, make: Make, keeping: Machine
) -> None:
    await past_days(own.rest, 2)
    await mark(own, "archive", 1)
    levels = keeping.engine.core(Levels)
    await levels.refresh()
    merged = await keeping.engine.metrics.gather()
    levels.add_to(merged, server=False)
    counted = merged.levels[catalogue.UNARCHIVED.name]
    assert counted == {("lease_events",): 0, ("results",): 0, ("archive",): 1}
    await machine.engine.core(Levels).refresh()
    silent = await machine.engine.metrics.gather()
    machine.engine.core(Levels).add_to(silent, server=False)
    assert catalogue.UNARCHIVED.name not in silent.levels
