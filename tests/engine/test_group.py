"""Group commit: who shares a statement with whom, and what each caller is told. The statements here are stand-ins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import asyncpg
import pytest

from app.errors import TopicNotFound, Unavailable
from app.kernel.batching import RETRIES, Apart, GroupCommit

Answer = list[str | BaseException]


class Statement:
    """Runs when it is let, and writes down for whom."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.most_at_once = 0
        self._running = 0
        self._let = asyncio.Event()
        self._let.set()

    def hold(self) -> None:
        """From now on statements wait."""
        self._let.clear()

    def let(self) -> None:
        """Statements may end."""
        self._let.set()

    async def __call__(self, items: Sequence[str]) -> Answer:
        self.groups.append(list(items))
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        await self._let.wait()
        self._running -= 1
        return [f"{item}!" for item in items]


async def soon(fact: Callable[[], bool]) -> None:
    """Let the loop turn until the fact holds."""
    for _ in range(1_000):
        if fact():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come")


async def test_an_idle_group_sends_at_once() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=10)
    assert await group.submit("a", "one") == "one!"
    assert statement.groups == [["one"]]


async def test_what_arrives_meanwhile_is_the_next_statement() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=10)
    statement.hold()
    first = group.submit("a", "one")
    await soon(lambda: statement.groups == [["one"]])
    later = [group.submit("a", item) for item in ("two", "three", "four")]
    statement.let()
    assert [await future for future in (first, *later)] == ["one!", "two!", "three!", "four!"]
    assert statement.groups == [["one"], ["two", "three", "four"]]


async def test_one_statement_at_a_time_for_a_key_and_one_each_for_two() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=100)
    for _ in range(20):
        await asyncio.gather(*(group.submit("a", str(n)) for n in range(5)))
    assert statement.most_at_once == 1

    statement.hold()
    calls = [group.submit(key, key) for key in ("a", "b", "a", "b")]
    await soon(lambda: statement.most_at_once == 2)
    statement.let()
    assert await asyncio.gather(*calls) == ["a!", "b!", "a!", "b!"]


async def test_a_statement_carries_no_more_than_it_may_or_one_that_is_heavier() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=100, most=5, weight=len)
    calls = [group.submit("a", item) for item in ("xx", "xx", "xx", "xxxxxxxxx", "x")]
    await asyncio.gather(*calls)
    assert statement.groups == [["xx", "xx"], ["xx"], ["xxxxxxxxx"], ["x"]]


async def test_a_window_lets_others_join() -> None:
    statement = Statement()
    group: GroupCommit[str, str] = GroupCommit(statement, max_waiting=10, window=lambda _item: 0.05)
    first = group.submit("a", "one")
    for _ in range(5):
        await asyncio.sleep(0)
    assert statement.groups == []
    second = group.submit("a", "two")
    assert (await first, await second) == ("one!", "two!")
    assert statement.groups == [["one", "two"]]


async def test_who_left_before_the_statement_is_not_in_it() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=10)
    statement.hold()
    first = group.submit("a", "one")
    await soon(lambda: statement.groups == [["one"]])
    gone, stays = group.submit("a", "two"), group.submit("a", "three")
    gone.cancel()
    statement.let()
    assert (await first, await stays) == ("one!", "three!")
    assert statement.groups == [["one"], ["three"]]


async def test_a_statement_that_nobody_waits_for_is_not_sent() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=10)
    gone = group.submit("a", "one")
    gone.cancel()
    await group.drain()
    assert statement.groups == []


async def test_the_result_of_who_left_during_the_statement_is_told() -> None:
    told: list[tuple[str, str]] = []
    statement = Statement()
    group = GroupCommit(statement, max_waiting=10, left=lambda item, result: told.append((item, result)))
    statement.hold()
    gone, stays = group.submit("a", "one"), group.submit("a", "two")
    await soon(lambda: statement.groups == [["one", "two"]])
    gone.cancel()
    statement.let()
    assert await stays == "two!"
    assert told == [("one", "one!")]


async def test_an_error_of_who_left_is_nobodys() -> None:
    told: list[str] = []

    async def fails(items: Sequence[str]) -> Answer:
        await asyncio.sleep(0.01)
        return [TopicNotFound("t") for _ in items]

    group = GroupCommit(fails, max_waiting=10, left=lambda item, _result: told.append(item))
    gone = group.submit("a", "one")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gone.cancel()
    await group.drain()
    assert told == []


async def test_one_item_that_the_database_refuses_fails_alone() -> None:
    groups: list[list[str]] = []

    async def refuses(items: Sequence[str]) -> Answer:
        groups.append(list(items))
        if "bad" in items:
            raise asyncpg.DataError("invalid input")
        return [f"{item}!" for item in items]

    group = GroupCommit(refuses, max_waiting=10)
    calls = [group.submit("a", item) for item in ("one", "bad", "two")]
    one, bad, two = await asyncio.gather(*calls, return_exceptions=True)
    assert (one, two) == ("one!", "two!")
    assert isinstance(bad, asyncpg.DataError)
    assert groups == [["one", "bad", "two"], ["one"], ["bad"], ["two"]]


async def test_one_item_that_the_commit_answers_with_an_error_fails_alone() -> None:
    async def answers(items: Sequence[str]) -> Answer:
        return [TopicNotFound(item) if item == "bad" else f"{item}!" for item in items]

    group = GroupCommit(answers, max_waiting=10)
    one, bad = await asyncio.gather(*(group.submit("a", i) for i in ("one", "bad")), return_exceptions=True)
    assert one == "one!"
    assert isinstance(bad, TopicNotFound)


@pytest.mark.parametrize("error", [asyncpg.DeadlockDetectedError, asyncpg.SerializationError])
async def test_what_lost_a_race_is_tried_again(error: type[asyncpg.PostgresError]) -> None:
    tries = 0

    async def loses(items: Sequence[str]) -> Answer:
        nonlocal tries
        tries += 1
        if tries <= RETRIES:
            raise error("deadlock detected")
        return [f"{item}!" for item in items]

    group = GroupCommit(loses, max_waiting=10)
    calls = [group.submit("a", item) for item in ("one", "two")]
    assert await asyncio.gather(*calls) == ["one!", "two!"]
    assert tries == RETRIES + 1


async def test_what_can_not_be_done_together_is_done_apart() -> None:
    sent: list[list[str]] = []

    async def alone(items: Sequence[str]) -> Answer:
        sent.append(list(items))
        if len(items) > 1:
            raise Apart
        return [f"{item}!" for item in items]

    group = GroupCommit(alone, max_waiting=10)
    calls = [group.submit("a", item) for item in ("one", "two")]
    assert await asyncio.gather(*calls) == ["one!", "two!"]
    assert sent == [["one", "two"], ["one"], ["two"]]


async def test_what_always_loses_is_given_up() -> None:
    async def loses(items: Sequence[str]) -> Answer:
        raise asyncpg.DeadlockDetectedError("deadlock detected")

    group = GroupCommit(loses, max_waiting=10)
    with pytest.raises(asyncpg.DeadlockDetectedError):
        await group.submit("a", "one")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("no"),
        TimeoutError(),
        asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
        asyncpg.InterfaceError("pool is closed"),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_database_that_is_away_is_no_callers_fault(error: Exception) -> None:
    """Nor is it asked again for each caller alone: it may have done what it was asked."""
    groups: list[list[str]] = []

    async def away(items: Sequence[str]) -> Answer:
        groups.append(list(items))
        raise error

    group = GroupCommit(away, max_waiting=10)
    answers = await asyncio.gather(*(group.submit("a", i) for i in ("one", "two")), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable, Unavailable]
    assert groups == [["one", "two"]]


async def test_too_many_are_refused_at_once() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=3)
    statement.hold()
    calls = [group.submit("a", "under way")]
    await soon(lambda: len(statement.groups) == 1)
    calls += [group.submit("a", str(n)) for n in range(3)]
    with pytest.raises(Unavailable, match="Too many"):
        group.submit("a", "one too many")
    other = group.submit("b", "another topic")
    statement.let()
    assert len(await asyncio.gather(*calls, other)) == 5
    assert await group.submit("a", "there is room again") == "there is room again!"


async def test_a_failure_is_not_the_end_of_its_key() -> None:
    fail = True

    async def sometimes(items: Sequence[str]) -> Answer:
        if fail:
            raise ValueError("a mistake of ours")
        return [f"{item}!" for item in items]

    group = GroupCommit(sometimes, max_waiting=10)
    with pytest.raises(ValueError, match="a mistake of ours"):
        await group.submit("a", "one")
    fail = False
    assert await group.submit("a", "two") == "two!"


async def test_drain_waits_for_everything_and_nothing_is_kept() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=100)
    statement.hold()
    calls = [group.submit(key, item) for key in range(5) for item in ("one", "two")]
    await soon(lambda: len(statement.groups) == 5)
    calls += [group.submit(key, "three") for key in range(5)]
    draining = asyncio.create_task(group.drain())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not draining.done()
    statement.let()
    await draining
    assert all(call.done() for call in calls)
    assert len(statement.groups) == 10
    assert not group._waiting
    assert not group._runners


async def test_a_thousand_topics_leave_nothing_behind() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=10)
    await asyncio.gather(*(group.submit(key, "one") for key in range(1_000)))
    await group.drain()
    assert not group._waiting
    assert not group._runners


async def test_who_submits_when_an_answer_comes_joins_the_next_statement() -> None:
    """The moment between the last answer and the runner's end: nobody may fall into it."""
    statement = Statement()
    group = GroupCommit(statement, max_waiting=10)
    answers: list[str] = []

    async def caller(turns: int) -> None:
        for turn in range(turns):
            answers.append(await asyncio.wait_for(group.submit("a", str(turn)), 5))

    await asyncio.gather(*(caller(50) for _ in range(4)))
    assert len(answers) == 200
