"""The verbs of lease holders: ack, nack, fail, extend, in groups. docs/semantics.md, sections 1 to 3."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from asyncpg.pgproto.pgproto import UUID

from app.base.metrics import Verb
from app.base.signals import Signal
from app.kernel.batching import GroupCommit, for_caller, tried_again
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Ending, KeyedNackResult, Return
from app.kernel.model import HeldJob, Job
from app.kernel.settle.exit_rows import Spent
from app.kernel.settle.exits import Exits
from app.kernel.settle.results import AckCounts, Keep, Progress, find_completed
from app.kernel.state import EngineState
from app.kernel.topics.policy import Policy

log = logging.getLogger(__name__)


class _SettleCall(msgspec.Struct, frozen=True):
    """One caller's jobs. `returns`, `leases_ms`, `results` (texts of JSON) and `progress` stand beside `held`, unless
    they are empty. Places are added to `refunded` and `ended` by a nack, and to `cancelled` by an extend."""

    policy: Policy
    held: Sequence[HeldJob]
    returns: Sequence[Return] = msgspec.field(default_factory=tuple)
    leases_ms: Sequence[int] = msgspec.field(default_factory=tuple)
    refunded: set[int] = msgspec.field(default_factory=set)
    ended: set[int] = msgspec.field(default_factory=set)
    cancelled: set[int] = msgspec.field(default_factory=set)
    results: Sequence[str | None] = ()
    progress: Sequence[Progress | None] = ()


class _Entry(msgspec.Struct, frozen=True):
    held: HeldJob
    call: int  # the caller's place in the group
    place: int  # the job's place in the caller's list


class Settlements:
    """One statement in flight for each verb and topic. Each answer is by place in the caller's list. A place that is
    missing was not its holder's any more, and nothing was changed there."""

    def __init__(self, state: EngineState, exits: Exits) -> None:
        self._state = state
        self._exits = exits
        self._acked, self._nacked, self._failed, self._extended = (
            Verb(state.metrics, verb) for verb in ("ack", "nack", "fail", "extend")
        )
        # Topic id, and seqs that are leased no more, by their holder's own doing.
        self.settled: Signal[int, Sequence[int]] = Signal()
        self._returns: set[asyncio.Task[None]] = set()
        size: Callable[[_SettleCall], int] = lambda call: len(call.held)  # noqa: E731
        self._acks: GroupCommit[_SettleCall, set[int]] = GroupCommit(
            self._ack, max_waiting=state.max_waiting, weight=_weight
        )
        self._nacks: GroupCommit[_SettleCall, set[int]] = GroupCommit(
            self._nack, max_waiting=state.max_waiting, weight=size
        )
        self._fails: GroupCommit[_SettleCall, set[int]] = GroupCommit(
            self._fail, max_waiting=state.max_waiting, weight=size
        )
        self._extends: GroupCommit[_SettleCall, dict[int, int]] = GroupCommit(
            self._extend, max_waiting=state.max_waiting, weight=size
        )

    async def ack(self, policy: Policy, held: Sequence[HeldJob], results: Sequence[str | None] = ()) -> set[int]:
        """Complete jobs: the places in `held` that were. results[i], the text of JSON, belongs to held[i]. A job that
        was completed with a result under this very lease before counts as well."""
        return await self._acks.submit(policy.topic.id, _SettleCall(policy, held, results=results)) if held else set()

    async def nack(
        self,
        policy: Policy,
        held: Sequence[HeldJob],
        returns: Sequence[Return],
        refunded: set[int] | None = None,
        ended: set[int] | None = None,
    ) -> set[int]:
        """Return jobs to the queue, or take out those with no deliveries left: the places that were held.

        refunded: gets the places whose delivery was given back, as was asked for.
        ended: gets the places whose job can't be claimed again.
        """
        if not held:
            return set()
        call = _SettleCall(
            policy,
            held,
            returns,
            refunded=set() if refunded is None else refunded,
            ended=set() if ended is None else ended,
        )
        return await self._nacks.submit(policy.topic.id, call)

    async def fail(self, policy: Policy, held: Sequence[HeldJob], errors: Sequence[str | None]) -> set[int]:
        """Take jobs out, whatever is left of their deliveries: the places that were held."""
        if not held:
            return set()
        returns = [Return(error=error) for error in errors]
        return await self._fails.submit(policy.topic.id, _SettleCall(policy, held, returns))

    async def extend(
        self,
        policy: Policy,
        held: Sequence[HeldJob],
        lease_ms: int,
        progress: Sequence[Progress | None] = (),
        cancelled: set[int] | None = None,
    ) -> dict[int, int]:
        """Set deadlines to now + lease_ms: place in `held` → the new deadline in ms since 1970. progress[i] is how far
        the holder of held[i] is. Adds to `cancelled` those whose job was cancelled."""
        if not held:
            return {}
        found = set() if cancelled is None else cancelled
        call = _SettleCall(policy, held, (), [lease_ms] * len(held), cancelled=found, progress=progress)
        return await self._extends.submit(policy.topic.id, call)

    def give_back(self, policy: Policy, node: str, jobs: Sequence[Job], *, refund: bool = True) -> asyncio.Future[None]:
        """Return jobs that their holder can't work on: done when they are, which nobody has to wait for, and which
        nobody can cancel. Best effort: where it fails, the deadline returns them."""
        task = asyncio.create_task(self._give_back(policy, node, jobs, refund=refund))
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)
        return asyncio.shield(task)

    async def _give_back(self, policy: Policy, node: str, jobs: Sequence[Job], *, refund: bool) -> None:
        if not jobs:
            return
        held = [HeldJob(job.seq, UUID(job.lease), node) for job in jobs]
        try:
            returned = await self.nack(policy, held, [Return(refunds=None if refund else 0)] * len(held))
            if refund:  # nobody was handed these
                await self._state.throttle.put_back(policy, len(returned))
        except Exception as error:
            log.warning("%d leases of %s wait for their deadline: %r", len(jobs), policy.topic.name, error)

    def groups(self) -> dict[str, list[GroupCommit[Any, Any]]]:
        """Its group commits, by verb."""
        return {"ack": [self._acks], "nack": [self._nacks], "fail": [self._fails], "extend": [self._extends]}

    async def drain(self) -> None:
        """Wait for all that is under way."""
        if self._returns:
            await asyncio.wait(self._returns)
        for group in (self._acks, self._nacks, self._fails, self._extends):
            await group.drain()

    async def _ack(self, calls: Sequence[_SettleCall]) -> list[set[int] | BaseException]:
        policy, entries = calls[-1].policy, _in_lock_order(calls)
        held, ended, db = [entry.held for entry in entries], AckCounts(), self._state.verbs(policy)
        whose = await self._state.users.whose(policy, (one.seq for one in held))
        results = _column(entries, [call.results for call in calls])
        keep = Keep(policy.config.result_ttl_ms, policy.config.replayable, policy.hears_of_all_jobs)
        done = await consumer.ack(db, policy.topic, held, ended, results=results, keep=keep)
        again = await self._completed_before(policy, held, results, done) if results else set()
        self._acked.count_statement([len(call.held) for call in calls])
        topic = self._state.metrics.topic(policy.topic.name)
        topic.acked.add(len(done))
        topic.deliveries.observe_all(ended.deliveries)
        topic.processing_ms.observe_all(ended.ages_ms)
        self._state.fairness.measure(policy.topic.id, ended.tenants, ended.ages_ms)
        self._note_settled(policy, entries, done, ended.tenants)
        if whose:
            self._state.users.tell(policy, "completed", [held[i].seq for i in sorted(done)], whose)
        if done:
            await self._state.groups.let_next_through(policy)
        return _shares(calls, entries, done | again)

    async def _completed_before(
        self, policy: Policy, held: Sequence[HeldJob], results: Sequence[str | None], done: set[int]
    ) -> set[int]:
        """Places that were not done now, since they were before, with a result under the lease that is named again."""
        leases = {
            i: (one.seq, one.lease)
            for i, one in enumerate(held)
            if i not in done and one.lease is not None and results[i] is not None
        }
        if not leases:
            return set()
        places = list(leases)
        found = await find_completed(self._state.verbs(policy), policy.topic, list(leases.values()))
        return {places[i] for i in found}

    async def _nack(self, calls: Sequence[_SettleCall]) -> list[set[int] | BaseException]:
        policy, entries = calls[-1].policy, _in_lock_order(calls)
        held = [entry.held for entry in entries]
        returns = [calls[entry.call].returns[entry.place] for entry in entries]
        result = await consumer.nack(
            self._state.verbs(policy), policy.topic, policy.budget, held, returns, backoff=policy.config.backoff
        )
        # What follows is for some jobs alone, and the others are returned by then: its errors are for their callers.
        out, error_out = await self._retire(policy, entries, returns, result.spent) if result.spent else (set(), None)
        keyed = sorted(result.keyed)
        more, error_keyed = await self._return_keyed(policy, keyed, entries, returns) if keyed else (_NONE, None)
        done = result.done | out | more.done
        if more.ended:
            await self._state.groups.let_next_through(policy)
        self._note_settled(policy, entries, done)
        self._nacked.count_statement([len(call.held) for call in calls])
        refunded, delays = result.refunded | more.refunded, result.delays_ms + more.delays_ms
        topic = self._state.metrics.topic(policy.topic.name)
        topic.nacked.add(len(done))
        topic.refunded.add(len(refunded))
        self._state.marks.look_at_due(policy.topic.id)
        now = delays.count(0)
        self._state.note_move(policy.topic, ready=now)
        self._state.waiters.announce(policy.topic.id, now)
        if now < len(delays):
            self._state.waiters.due_in(policy.topic.id, min(delay for delay in delays if delay) / 1000)
        for i in refunded:
            calls[entries[i].call].refunded.add(entries[i].place)
        for i in out | more.ended:
            calls[entries[i].call].ended.add(entries[i].place)
        shares = _shares(calls, entries, done)
        for places, error in ((result.spent.keys() - out, error_out), (set(keyed) - more.done, error_keyed)):
            if error is not None:
                for i in places:
                    shares[entries[i].call] = error
        return shares

    async def _return_keyed(
        self, policy: Policy, keyed: Sequence[int], entries: Sequence[_Entry], returns: Sequence[Return]
    ) -> tuple[KeyedNackResult, BaseException | None]:
        """Return jobs with keys: what became of them, and an error if it failed."""
        jobs, how = [entries[i].held for i in keyed], [returns[i] for i in keyed]
        db = self._state.verbs(policy)
        try:
            back = await tried_again(
                lambda: consumer.nack_keyed(db, policy.topic, jobs, how, backoff=policy.config.backoff)
            )
        except Exception as error:
            return _NONE, for_caller(error)
        done, ended, refunded = ({keyed[i] for i in places} for places in (back.done, back.ended, back.refunded))
        out, failure = await self._end_cancelled(policy, [i for i in keyed if i not in done], entries, returns)
        return KeyedNackResult(done | out, ended | out, refunded, back.delays_ms), failure

    async def _end_cancelled(
        self, policy: Policy, left: Sequence[int], entries: Sequence[_Entry], returns: Sequence[Return]
    ) -> tuple[set[int], BaseException | None]:
        """Of jobs with keys that were not returned, take out those that were cancelled since they were looked at: the
        places that went, and an error if that failed."""
        if not left:
            return set(), None
        jobs, db = [entries[i].held for i in left], self._state.verbs(policy)
        try:
            leases = await tried_again(lambda: consumer.leases(db, policy.topic, jobs))
        except Exception as error:
            return set(), for_caller(error)
        marked = {left[i]: ending for i, ending in leases.items() if ending.cancelled}
        return await self._retire(policy, entries, returns, marked)

    async def _fail(self, calls: Sequence[_SettleCall]) -> list[set[int] | BaseException]:
        policy, entries = calls[-1].policy, _in_lock_order(calls)
        returns = [calls[entry.call].returns[entry.place] for entry in entries]
        held = [entry.held for entry in entries]
        leases = await consumer.leases(self._state.verbs(policy), policy.topic, held)
        done, error = await self._retire(policy, entries, returns, leases)
        self._note_settled(policy, entries, done)
        self._failed.count_statement([len(call.held) for call in calls])
        shares = _shares(calls, entries, done)
        if error is not None:
            for i in leases.keys() - done:
                shares[entries[i].call] = error
        return shares

    async def _retire(
        self, policy: Policy, entries: Sequence[_Entry], returns: Sequence[Return], leases: dict[int, Ending]
    ) -> tuple[set[int], BaseException | None]:
        """Take out what had its last delivery: the places that went, and an error if that failed.

        A heartbeat that came in between is no reason to keep a job: try again.
        """
        gone: set[int] = set()
        for _ in range(consumer.MAX_RUNS):
            rest = [place for place in sorted(leases) if place not in gone]
            if not rest:
                break
            spent = [Spent(entries[i].held.seq, leases[i].lease, returns[i].error, leases[i].cancelled) for i in rest]
            try:
                done = await tried_again(functools.partial(self._exits.retire, policy, spent))
            except Exception as error:
                return gone, for_caller(error)
            gone.update(rest[i] for i in done)
        return gone, None

    async def _extend(self, calls: Sequence[_SettleCall]) -> list[dict[int, int] | BaseException]:
        policy, entries = calls[-1].policy, _in_lock_order(calls)
        cancelled: set[int] = set()
        held, db = [entry.held for entry in entries], self._state.verbs(policy)
        leases_ms = [calls[entry.call].leases_ms[entry.place] for entry in entries]
        progress = _column(entries, [call.progress for call in calls])
        done = await consumer.extend(db, policy.topic, held, leases_ms, cancelled, progress=progress)
        for i in cancelled:
            calls[entries[i].call].cancelled.add(entries[i].place)
        self._extended.count_statement([len(call.held) for call in calls])
        self._state.metrics.topic(policy.topic.name).extended.add(len(done))
        shares: list[dict[int, int] | BaseException] = []
        parts: list[dict[int, int]] = [{} for _ in calls]
        for i, deadline in done.items():
            parts[entries[i].call][entries[i].place] = deadline
        shares.extend(parts)
        return shares

    def _note_settled(
        self, policy: Policy, entries: Sequence[_Entry], done: set[int], tenants: Sequence[str] = ()
    ) -> None:
        self._state.note_move(policy.topic, in_flight=-len(done))
        self._state.make_room(policy, len(done), tenants)
        seqs = [entries[i].held.seq for i in done]
        self.settled.emit(policy.topic.id, seqs)


_NONE: Final = KeyedNackResult(set(), set(), set(), [])
_Given = TypeVar("_Given")
BYTES_A_JOB: Final = 64 * 1024  # of results: those of one statement are 64 MiB at most, or one call's


def _weight(call: _SettleCall) -> int:
    return len(call.held) + sum(len(one) for one in call.results if one) // BYTES_A_JOB


def _column(entries: Sequence[_Entry], given: Sequence[Sequence[_Given | None]]) -> list[_Given | None]:
    """What callers gave with each of their jobs, in the order of the entries; empty where no caller gave any."""
    if not any(given):
        return []
    return [given[entry.call][entry.place] if given[entry.call] else None for entry in entries]


def _in_lock_order(calls: Sequence[_SettleCall]) -> list[_Entry]:
    """All jobs of all callers, ascending by seq: the order in which every verb locks."""
    entries = [_Entry(held, c, p) for c, call in enumerate(calls) for p, held in enumerate(call.held)]
    entries.sort(key=lambda entry: entry.held.seq)
    return entries


def _shares(calls: Sequence[_SettleCall], entries: Sequence[_Entry], done: set[int]) -> list[set[int] | BaseException]:
    parts: list[set[int]] = [set() for _ in calls]
    for i in done:
        parts[entries[i].call].add(entries[i].place)
    return list(parts)
