"""The verbs of lease holders, in group commits: ack, nack, fail, extend. docs/semantics.md, sections 1 to 3."""

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
from app.kernel.batching import GroupCommit, error_for_caller, retry_lost_race
from app.kernel.claim import consumer
from app.kernel.claim.consumer import KeyedNackResult, LeaseState, Return
from app.kernel.model import HeldJob, Job
from app.kernel.settle.exit_rows import Spent
from app.kernel.settle.exits import Exits
from app.kernel.settle.results import AckCounts, Keep, Progress, find_completed
from app.kernel.state import EngineState
from app.kernel.topics.policy import Policy

log = logging.getLogger(__name__)


class _SettleCall(msgspec.Struct, frozen=True):
    """The jobs of one call. `returns`, `leases_ms`, `results` (JSON text) and `progress` have an entry per job, or none
    at all. A nack adds places to `refunded` and `ended`, an extend to `cancelled`."""

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
    """Runs one statement at a time for each verb and topic. Each answer is by place in the caller's list. A missing
    place means that the caller did not hold the job any more, and the job was not changed."""

    def __init__(self, state: EngineState, exits: Exits) -> None:
        self._state = state
        self._exits = exits
        self._acked, self._nacked, self._failed, self._extended = (
            Verb(state.metrics, verb) for verb in ("ack", "nack", "fail", "extend")
        )
        # Topic id, and seqs whose leases were ended by their holders.
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
        """Complete jobs. Returns the places in `held` of the completed jobs. results[i] is JSON text for held[i]. A job
        that was already completed with a result under the same lease counts too."""
        return await self._acks.submit(policy.topic.id, _SettleCall(policy, held, results=results)) if held else set()

    async def nack(
        self,
        policy: Policy,
        held: Sequence[HeldJob],
        returns: Sequence[Return],
        refunded: set[int] | None = None,
        ended: set[int] | None = None,
    ) -> set[int]:
        """Return jobs to the queue, or remove those with no deliveries left. Returns the places whose lease was valid.

        refunded: the places whose delivery was given back are added to it.
        ended: the places whose job can't be claimed again are added to it.
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
        """Fail jobs, whatever deliveries are left. Returns the places whose lease was valid."""
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
        """Set deadlines to now + lease_ms. Returns the new deadline in ms since 1970 by place in `held`. progress[i]
        belongs to held[i]. The places of cancelled jobs are added to `cancelled`."""
        if not held:
            return {}
        found = set() if cancelled is None else cancelled
        call = _SettleCall(policy, held, (), [lease_ms] * len(held), cancelled=found, progress=progress)
        return await self._extends.submit(policy.topic.id, call)

    def give_back(self, policy: Policy, node: str, jobs: Sequence[Job], *, refund: bool = True) -> asyncio.Future[None]:
        """Return jobs that their holder can't work on. The future is done once they are returned; it need not be
        awaited, and cancelling it does not stop the return. If the return fails, the jobs come back at their
        deadline."""
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
            if refund:  # no worker got these jobs
                await self._state.throttle.put_back(policy, len(returned))
        except Exception as error:
            log.warning(
                "can't return %d jobs of topic %s before their deadline: %r", len(jobs), policy.topic.name, error
            )

    def groups(self) -> dict[str, list[GroupCommit[Any, Any]]]:
        return {"ack": [self._acks], "nack": [self._nacks], "fail": [self._fails], "extend": [self._extends]}

    async def drain(self) -> None:
        """Wait for all statements under way."""
        if self._returns:
            await asyncio.wait(self._returns)
        for group in (self._acks, self._nacks, self._fails, self._extends):
            await group.drain()

    async def _ack(self, calls: Sequence[_SettleCall]) -> list[set[int] | BaseException]:
        policy, entries = calls[-1].policy, _in_lock_order(calls)
        held, ended, db = [entry.held for entry in entries], AckCounts(), self._state.verbs(policy)
        owners = await self._state.users.find_owners(policy, (one.seq for one in held))
        results = _column(entries, [call.results for call in calls])
        keep = Keep(policy.config.result_ttl_ms, policy.config.replayable, policy.has_webhook)
        done = await consumer.ack(db, policy.topic, held, ended, results=results, keep=keep)
        again = await self._completed_before(policy, held, results, done) if results else set()
        self._acked.count_statement([len(call.held) for call in calls])
        topic = self._state.metrics.topic(policy.topic.name)
        topic.acked.add(len(done))
        topic.deliveries.observe_all(ended.deliveries)
        topic.processing_ms.observe_all(ended.ages_ms)
        self._state.fairness.measure(policy.topic.id, ended.tenants, ended.ages_ms)
        self._note_settled(policy, entries, done, ended.tenants)
        if owners:
            self._state.users.tell(policy, "completed", [held[i].seq for i in sorted(done)], owners)
        if done:
            await self._state.groups.let_next_through(policy)
        return _shares(calls, entries, done | again)

    async def _completed_before(
        self, policy: Policy, held: Sequence[HeldJob], results: Sequence[str | None], done: set[int]
    ) -> set[int]:
        """The places of jobs that were completed before, with a result under the same lease."""
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
        # The following steps concern some jobs only. Their errors go to the callers of those jobs.
        out, error_out = (
            await self._remove_spent(policy, entries, returns, result.spent) if result.spent else (set(), None)
        )
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
        """Return jobs with keys. Returns the result, and an error if it failed."""
        jobs, how = [entries[i].held for i in keyed], [returns[i] for i in keyed]
        db = self._state.verbs(policy)
        try:
            back = await retry_lost_race(
                lambda: consumer.nack_keyed(db, policy.topic, jobs, how, backoff=policy.config.backoff)
            )
        except Exception as error:
            return _NONE, error_for_caller(error)
        done, ended, refunded = ({keyed[i] for i in places} for places in (back.done, back.ended, back.refunded))
        out, failure = await self._end_cancelled(policy, [i for i in keyed if i not in done], entries, returns)
        return KeyedNackResult(done | out, ended | out, refunded, back.delays_ms), failure

    async def _end_cancelled(
        self, policy: Policy, left: Sequence[int], entries: Sequence[_Entry], returns: Sequence[Return]
    ) -> tuple[set[int], BaseException | None]:
        """Remove jobs with keys that were not returned because they were cancelled meanwhile. Returns the places of the
        removed jobs, and an error if it failed."""
        if not left:
            return set(), None
        jobs, db = [entries[i].held for i in left], self._state.verbs(policy)
        try:
            leases = await retry_lost_race(lambda: consumer.leases(db, policy.topic, jobs))
        except Exception as error:
            return set(), error_for_caller(error)
        marked = {left[i]: ending for i, ending in leases.items() if ending.cancelled}
        return await self._remove_spent(policy, entries, returns, marked)

    async def _fail(self, calls: Sequence[_SettleCall]) -> list[set[int] | BaseException]:
        policy, entries = calls[-1].policy, _in_lock_order(calls)
        returns = [calls[entry.call].returns[entry.place] for entry in entries]
        held = [entry.held for entry in entries]
        leases = await consumer.leases(self._state.verbs(policy), policy.topic, held)
        done, error = await self._remove_spent(policy, entries, returns, leases)
        self._note_settled(policy, entries, done)
        self._failed.count_statement([len(call.held) for call in calls])
        shares = _shares(calls, entries, done)
        if error is not None:
            for i in leases.keys() - done:
                shares[entries[i].call] = error
        return shares

    async def _remove_spent(
        self, policy: Policy, entries: Sequence[_Entry], returns: Sequence[Return], leases: dict[int, LeaseState]
    ) -> tuple[set[int], BaseException | None]:
        """Remove spent jobs. Returns the places that were removed, and an error if it failed. A heartbeat that came in
        between does not keep a job, so it tries again."""
        gone: set[int] = set()
        for _ in range(consumer.MAX_RUNS):
            rest = [place for place in sorted(leases) if place not in gone]
            if not rest:
                break
            spent = [Spent(entries[i].held.seq, leases[i].lease, returns[i].error, leases[i].cancelled) for i in rest]
            try:
                done = await retry_lost_race(functools.partial(self._exits.remove_spent, policy, spent))
            except Exception as error:
                return gone, error_for_caller(error)
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
BYTES_A_JOB: Final = 64 * 1024  # of results that weigh as one more job: a statement has 64 MiB of them, or one call's


def _weight(call: _SettleCall) -> int:
    return len(call.held) + sum(len(one) for one in call.results if one) // BYTES_A_JOB


def _column(entries: Sequence[_Entry], given: Sequence[Sequence[_Given | None]]) -> list[_Given | None]:
    """The callers' values for each job, in the order of the entries; empty if no caller gave any."""
    if not any(given):
        return []
    return [given[entry.call][entry.place] if given[entry.call] else None for entry in entries]


def _in_lock_order(calls: Sequence[_SettleCall]) -> list[_Entry]:
    """All jobs of all callers, ascending by seq: the order in which every verb locks rows."""
    entries = [_Entry(held, c, p) for c, call in enumerate(calls) for p, held in enumerate(call.held)]
    entries.sort(key=lambda entry: entry.held.seq)
    return entries


def _shares(calls: Sequence[_SettleCall], entries: Sequence[_Entry], done: set[int]) -> list[set[int] | BaseException]:
    parts: list[set[int]] = [set() for _ in calls]
    for i in done:
        parts[entries[i].call].add(entries[i].place)
    return list(parts)
