"""Group commit: who shares a statement with whom, and what each caller is told. The statements here are stand-ins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import asyncpg
import pytest

from app.errors import TopicNotFound, Unavailable
from app.kernel.batching import RETRIES, GroupCommit, MustSplit

Answer = list[str | BaseException]


class Statement:
    """Runs when `let` is set, and writes down for whom. `fault`: the error that it ends with, if any."""

    def __init__(self, fault: Callable[[Sequence[str]], BaseException | None] = lambda _items: None) -> None:
        self.groups: list[list[str]] = []
        self.most_at_once = 0
        self.let = asyncio.Event()
        self.let.set()
        self._fault = fault
        self._running = 0

    async def __call__(self, items: Sequence[str]) -> Answer:
        self.groups.append(list(items))
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        await self.let.wait()
        self._running -= 1
        if error := self._fault(items):
            raise error
        return [f"{item}!" for item in items]


async def soon(fact: Callable[[], bool]) -> None:
    """Let the loop turn until the fact holds."""
    for _ in range(1_000):
        if fact():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come")


async def test_what_arrives_while_a_statement_runs_is_the_next_one() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=10)
    statement.let.clear()
    first = group.submit("a", "one")
    await soon(lambda: statement.groups == [["one"]])
    later = [group.submit("a", item) for item in ("two", "three", "four")]
    statement.let.set()
    assert [await future for future in (first, *later)] == ["one!", "two!", "three!", "four!"]
    assert statement.groups == [["one"], ["two", "three", "four"]]


async def test_one_statement_at_a_time_for_a_key_and_one_each_for_two() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=100)
    for _ in range(20):
        await asyncio.gather(*(group.submit("a", str(n)) for n in range(5)))
    assert statement.most_at_once == 1
    statement.let.clear()
    calls = [group.submit(key, key) for key in ("a", "b", "a", "b")]
    await soon(lambda: statement.most_at_once == 2)
    statement.let.set()
    assert await asyncio.gather(*calls) == ["a!", "b!", "a!", "b!"]


async def test_a_statement_carries_no_more_than_it_may_or_one_that_is_heavier() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=100, most=5, weight=len)
    await asyncio.gather(*(group.submit("a", item) for item in ("xx", "xx", "xx", "xxxxxxxxx", "x")))
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
    group.submit("a", "alone").cancel()
    await group.drain()
    assert statement.groups == [], "a statement that nobody waits for is not sent"
    statement.let.clear()
    first = group.submit("a", "one")
    await soon(lambda: statement.groups == [["one"]])
    gone, stays = group.submit("a", "two"), group.submit("a", "three")
    gone.cancel()
    statement.let.set()
    assert (await first, await stays) == ("one!", "three!")
    assert statement.groups == [["one"], ["three"]]


@pytest.mark.parametrize("fails", [False, True])
async def test_the_result_of_who_left_during_the_statement_is_told_but_not_an_error(fails: bool) -> None:
    told: list[tuple[str, str]] = []
    statement = Statement(lambda _items: TopicNotFound("t") if fails else None)
    group = GroupCommit(statement, max_waiting=10, on_abandoned=lambda item, result: told.append((item, result)))
    statement.let.clear()
    gone, stays = group.submit("a", "one"), group.submit("a", "two")
    await soon(lambda: statement.groups == [["one", "two"]])
    gone.cancel()
    statement.let.set()
    [answer] = await asyncio.gather(stays, return_exceptions=True)
    assert isinstance(answer, TopicNotFound) if fails else answer == "two!"
    assert told == ([] if fails else [("one", "one!")])


async def test_one_item_that_the_database_refuses_fails_alone() -> None:
    statement = Statement(lambda items: asyncpg.DataError("invalid input") if "bad" in items else None)
    group = GroupCommit(statement, max_waiting=10)
    calls = [group.submit("a", item) for item in ("one", "bad", "two")]
    one, bad, two = await asyncio.gather(*calls, return_exceptions=True)
    assert (one, two) == ("one!", "two!")
    assert isinstance(bad, asyncpg.DataError)
    assert statement.groups == [["one", "bad", "two"], ["one"], ["bad"], ["two"]]


async def test_one_item_that_the_commit_answers_with_an_error_fails_alone() -> None:
    async def answers(items: Sequence[str]) -> Answer:
        return [TopicNotFound(item) if item == "bad" else f"{item}!" for item in items]

    group = GroupCommit(answers, max_waiting=10)
    one, bad = await asyncio.gather(*(group.submit("a", i) for i in ("one", "bad")), return_exceptions=True)
    assert one == "one!"
    assert isinstance(bad, TopicNotFound)


async def test_what_can_not_be_done_together_is_done_apart() -> None:
    statement = Statement(lambda items: MustSplit() if len(items) > 1 else None)
    group = GroupCommit(statement, max_waiting=10)
    assert await asyncio.gather(*(group.submit("a", item) for item in ("one", "two"))) == ["one!", "two!"]
    assert statement.groups == [["one", "two"], ["one"], ["two"]]


@pytest.mark.parametrize("error", [asyncpg.DeadlockDetectedError, asyncpg.SerializationError])
async def test_what_lost_a_race_is_tried_again_and_given_up_in_the_end(error: type[asyncpg.PostgresError]) -> None:
    losses = RETRIES
    statement = Statement(lambda _items: error("lost") if len(statement.groups) <= losses else None)
    group = GroupCommit(statement, max_waiting=10)
    assert await asyncio.gather(*(group.submit("a", item) for item in ("one", "two"))) == ["one!", "two!"]
    assert statement.groups == [["one", "two"]] * (RETRIES + 1)
    losses = 1_000
    with pytest.raises(error):
        await group.submit("a", "three")


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
    statement = Statement(lambda _items: error)
    group = GroupCommit(statement, max_waiting=10)
    answers = await asyncio.gather(*(group.submit("a", i) for i in ("one", "two")), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable, Unavailable]
    assert statement.groups == [["one", "two"]]


async def test_too_many_are_refused_at_once() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=3)
    statement.let.clear()
    calls = [group.submit("a", "under way")]
    await soon(lambda: len(statement.groups) == 1)
    calls += [group.submit("a", str(n)) for n in range(3)]
    with pytest.raises(Unavailable, match="Too many"):
        group.submit("a", "one too many")
    other = group.submit("b", "another topic")
    statement.let.set()
    assert len(await asyncio.gather(*calls, other)) == 5
    assert await group.submit("a", "there is room again") == "there is room again!"


async def test_a_failure_is_not_the_end_of_its_key() -> None:
    statement = Statement(lambda items: ValueError("a mistake of ours") if "one" in items else None)
    group = GroupCommit(statement, max_waiting=10)
    with pytest.raises(ValueError, match="a mistake of ours"):
        await group.submit("a", "one")
    assert await group.submit("a", "two") == "two!"


async def test_drain_waits_for_everything_and_nothing_is_kept() -> None:
    statement = Statement()
    group = GroupCommit(statement, max_waiting=100)
    statement.let.clear()
    calls = [group.submit(key, item) for key in range(5) for item in ("one", "two")]
    await soon(lambda: len(statement.groups) == 5)
    calls += [group.submit(key, "three") for key in range(5)]
    draining = asyncio.create_task(group.drain())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not draining.done()
    statement.let.set()
    await draining
    assert all(call.done() for call in calls)
    assert len(statement.groups) == 10
    assert not group._waiting
    assert not group._runners


async def test_who_submits_when_an_answer_comes_joins_the_next_statement() -> None:
    """The moment between the last answer and the runner's end: nobody may fall into it."""
    group = GroupCommit(Statement(), max_waiting=10)

    async def caller() -> list[str]:
        return [await asyncio.wait_for(group.submit("a", str(turn)), 30) for turn in range(50)]

    assert await asyncio.gather(*(caller() for _ in range(4))) == [[f"{turn}!" for turn in range(50)]] * 4
