"""Whatever is done to a queue, in whatever order, the engine and PostgreSQL do what the model does."""

from __future__ import annotations

import itertools
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from asyncpg.pgproto.pgproto import UUID
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.base.db.pool import Pools
from app.features.upkeep import sweeps
from app.kernel.claim.consumer import Return
from app.kernel.claim.cursors import LOOK_SECONDS
from app.kernel.claim.walk import Claimer
from app.kernel.counts import inspector
from app.kernel.engine import Engine
from app.kernel.model import Batch, HeldJob, Seq
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, resolve
from tests.history.database import ledger
from tests.model import draws
from tests.model.draws import Handed, Keyed, Picks, Records
from tests.model.model import DeadLetter, Job, Limits, Queue, Row, Span
from tests.model.world import World
from tests.queue.calls import until
from tools.history.facts import Facts
from tools.history.history import History

T = TypeVar("T")
AHEAD = 2  # with more jobs than claims, few examples would get to what is done with leases
SHORT_US = 1_000_000  # what ends sooner is waited for


class QueueMachine(RuleBasedStateMachine):
    """One queue, its dead-letter topic, and two workers."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.name = f"m-{secrets.token_hex(4)}"
        self.dead = f"{self.name}.dlq"
        self.numbers = itertools.count(1)
        self.story: list[str] = []  # for the reader of a failure
        self.handed: list[Handed] = []
        # Rules' conditions look at these only: what is so by chance of time must not decide what can come next.
        self.enqueues = self.claims = 0
        self.claimed_at = 0.0  # by the process's clock
        self.returned = False  # since the last claim
        self.past: list[tuple[int, Queue]] = []  # by topic id
        self.buried: list[DeadLetter] = []  # from earlier topics of the name
        world.run(world.start())
        self.model = Queue(self.name, Limits())
        self.configure_now(Limits())
        self.topic_id = self.policy_now().topic.id

    # Plumbing.

    def policy_now(self) -> Any:
        return self.world.run(self.world.policy(self.name))

    def call(self, what: str, verb: Callable[[], Awaitable[T]]) -> tuple[T, Span, dict[int, Row]]:
        """Make a call: its answer, when it was, and what the table holds afterwards."""
        self.story.append(what)

        async def work() -> tuple[T, Span, dict[int, Row]]:
            begin = await self.world.clock()
            answer = await verb()
            span = Span(begin, await self.world.clock())
            self.story.append(f"    {span}: {answer}")
            return answer, span, await self.world.rows(self.name)

        return self.world.run(work())

    def configure_now(self, limits: Limits) -> None:
        self.story.append(f"configure {limits}")
        asked = AskedSettings(
            type="queue",
            max_deliveries=limits.max_deliveries,
            on_exhausted=limits.on_exhausted,
            dead_letter=self.dead if limits.on_exhausted == "dead_letter" else None,
        )
        self.world.run(store.put(self.world.pools.rest, self.name, resolve(self.name, asked)))
        self.world.policies.announce(self.name)
        self.model.limits = limits

    def delete_now(self, topic: str) -> None:
        async def work() -> None:
            policy = await self.world.policies.get(topic)
            assert await store.delete(self.world.pools.rest, topic, if_empty=False)
            self.world.policies.announce(topic)
            self.world.engine.drop(policy.topic)

        self.world.run(work())

    def named(self, picks: Picks) -> list[HeldJob]:
        """Jobs and their holders as a caller names them, each seq once."""
        held: dict[int, HeldJob] = {}
        now = {"leased": [job for job in self.model.jobs.values() if job.lease], "keyed": self.keyed()}
        for whose, which, fence in picks if self.handed else []:
            of: Sequence[Handed | Job] = now[whose] or now["leased"] if whose != "any" else ()
            of = of or self.handed
            job = of[-1 - which % len(of)]
            other = "b" if job.node == "a" else "a"
            lease, node = {
                "both": (job.lease, job.node),
                "lease": (job.lease, None),
                "node": (None, job.node),
                "foreign": (job.lease, other),
                "foreign node": (None, other),
                "forged": (secrets.token_hex(16), job.node),
            }[fence]
            held.setdefault(job.seq, HeldJob(job.seq, UUID(lease) if lease else None, node))  # type: ignore[arg-type]
        return list(held.values())

    def agree(self, held: Sequence[HeldJob], done: set[int], span: Span) -> list[int]:
        """The seqs whose caller was their holder, after a look at whether it was."""
        for place, one in enumerate(held):
            holds = self.model.holds(one, span)
            assert holds is None or holds is (place in done), f"{one}: done {place in done}, holder {holds}"
        return [held[place].seq for place in sorted(done)]

    # What may happen.

    @initialize(limits=draws.LIMITS, record=draws.KEYED, records=draws.RECORDS)
    def begin(self, limits: Limits, record: Keyed, records: Records) -> None:
        self.configure_now(limits)
        self.enqueue_by_key(record)
        self.put(records)

    @precondition(lambda self: self.enqueues <= self.claims + AHEAD)
    @rule(records=draws.RECORDS)
    def enqueue(self, records: Records) -> None:
        self.put(records)

    def put(self, records: Records) -> None:
        self.enqueues += 1
        priorities, delays, ttls, limits = zip(*records, strict=True)
        batch = Batch(
            payloads=[b'{"n":%d}' % next(self.numbers) for _ in records],
            priorities=list(priorities),
            delays_ms=list(delays),
            ttls_ms=list(ttls),
            max_deliveries=list(limits),
        )
        policy = self.policy_now()
        seqs, span, rows = self.call(
            f"enqueue {records}", lambda: self.world.engine.enqueues.enqueue(policy, batch, 100)
        )
        self.model.add(seqs, batch, rows, span)

    @rule(record=draws.KEYED)
    def enqueue_by_key(self, record: Keyed) -> None:
        taken, key, delay, ttl, limit = record
        if taken:
            key = next((job.key for job in self.keyed() if job.key), key)
        batch = Batch(
            payloads=[b'{"n":%d}' % next(self.numbers)],
            priorities=[0],
            delays_ms=[delay],
            ttls_ms=[ttl],
            max_deliveries=[limit],
            keys=[key],
        )
        policy = self.policy_now()
        placed, span, rows = self.call(f"enqueue by key {record}", lambda: self.world.put(policy, batch))
        self.returned = self.returned or placed.due > 0
        self.model.put(placed.seqs[0], placed.updated[0], batch, rows, span)

    @rule(record=draws.KEYED, lease_ms=draws.LEASES, delay_ms=draws.DELAYS)
    def write_anew_what_is_worked_on(self, record: Keyed, lease_ms: int, delay_ms: int) -> None:
        """And then give back what was being worked on, or let its lease end: of the two, one lives on."""
        claims = self.claims
        if not self.keyed():
            self.enqueue_by_key(record)
            self.take("a", 5, lease_ms, at_once=False)
        self.claims = claims + 1  # whether it had to
        for job in self.keyed()[-1:]:
            held = HeldJob(Seq(job.seq), UUID(job.lease or ""), job.node)
            self.enqueue_by_key((True, *record[1:]))
            if lease_ms > SHORT_US // 1000:
                self.give_back([held], delay_ms, None)
            else:
                self.let_time_pass()

    def keyed(self) -> list[Job]:
        """Jobs with keys that are leased, as far as is known."""
        return [job for job in self.model.jobs.values() if job.key and job.lease]

    @rule(node=draws.NODES, most=st.integers(1, 5), at_once=draws.AT_ONCE)
    def claim(self, node: str, most: int, at_once: bool) -> None:
        self.take(node, most, 60_000, at_once=at_once)

    @rule(node=draws.NODES, most=st.integers(1, 5), at_once=draws.AT_ONCE)
    def claim_briefly(self, node: str, most: int, at_once: bool) -> None:
        self.take(node, most, 100, at_once=at_once)

    def take(self, node: str, most: int, lease_ms: int, *, at_once: bool) -> None:
        self.claims += 1
        if not at_once:  # so that its order is certain, see Queue.claim
            self.world.run(until(self.looks, "the last claim is a while ago"))
        policy = self.policy_now()
        began = time.monotonic()
        jobs, span, rows = self.call(
            f"claim {node}, {most}, {lease_ms} ms",
            lambda: self.world.engine.claims.claim(Claimer(policy, node, most, lease_ms)),
        )
        glances = began < self.claimed_at + LOOK_SECONDS and not self.returned
        self.claimed_at, self.returned = time.monotonic(), False
        self.model.claim(jobs, rows, span, node=node, most=most, lease_ms=lease_ms, glances=glances)
        self.handed += [Handed(job.seq, job.lease, node) for job in jobs]

    async def looks(self) -> bool:
        return time.monotonic() > self.claimed_at + LOOK_SECONDS

    @precondition(lambda self: self.claims > 0)
    @rule(picks=draws.PICKS)
    def ack(self, picks: Picks) -> None:
        held, policy = self.named(picks), self.policy_now()
        done, span, _ = self.call(f"ack {held}", lambda: self.world.engine.settlements.ack(policy, held))
        for seq in self.agree(held, done, span):
            self.model.ack(seq)

    @precondition(lambda self: self.claims > 0)
    @rule(picks=draws.PICKS, delay_ms=draws.DELAYS, error=st.sampled_from([None, "it broke"]))
    def nack(self, picks: Picks, delay_ms: int, error: str | None) -> None:
        self.give_back(self.named(picks), delay_ms, error)

    def give_back(self, held: list[HeldJob], delay_ms: int, error: str | None) -> None:
        policy = self.policy_now()
        returns = [Return(delay_ms, error)] * len(held)
        done, span, rows = self.call(
            f"nack {held}, {delay_ms} ms, {error}", lambda: self.world.engine.settlements.nack(policy, held, returns)
        )
        self.returned = True
        for seq in sorted(self.agree(held, done, span)):
            self.model.nack(seq, rows, span, delay_ms, error)

    @precondition(lambda self: self.claims > 0)
    @rule(picks=draws.PICKS, lease_ms=draws.LEASES)
    def extend(self, picks: Picks, lease_ms: int) -> None:
        held, policy = self.named(picks), self.policy_now()
        done, span, rows = self.call(
            f"extend {held}, {lease_ms} ms", lambda: self.world.engine.settlements.extend(policy, held, lease_ms)
        )
        self.agree(held, set(done), span)
        for place, deadline_ms in done.items():
            seq = held[place].seq
            self.model.extend(seq, rows[seq], span, lease_ms, deadline_ms)

    @rule()
    def let_time_pass(self) -> None:
        self.story.append("let time pass")
        horizon = self.model.horizon(self.world.run(self.world.clock()) + SHORT_US)

        async def over() -> bool:
            return await self.world.clock() > horizon

        self.world.run(until(over, "leases, delays and times to live end"))

    @rule(sweep=st.sampled_from([sweeps.expiry, sweeps.exhaustion]))
    def clean_up(self, sweep: Callable[[Pools, Engine], Awaitable[int]]) -> None:
        _, span, rows = self.call(sweep.__name__, lambda: sweep(self.world.pools, self.world.engine))
        is_out = self.model.expirable if sweep is sweeps.expiry else self.model.spent
        self.model.exits(rows, span, [seq for seq, job in self.model.jobs.items() if is_out(job, span)])

    @precondition(lambda self: self.claims > 0)
    @rule()
    def clean_up_keys(self) -> None:
        _, span, rows = self.call("superseded", lambda: sweeps.supersede(self.world.pools, self.world.engine))
        self.model.supersede(rows, span)

    @rule(limits=draws.LIMITS)
    def configure(self, limits: Limits) -> None:
        self.configure_now(limits)

    @precondition(lambda self: self.claims > 4 * len(self.past) + 4)
    @rule()
    def recreate(self) -> None:
        self.story.append("delete and create")
        self.delete_now(self.name)
        self.model.delete()
        self.past.append((self.topic_id, self.model))
        self.buried += self.model.dead
        self.model = Queue(self.name, self.model.limits, leases=self.model.leases)
        self.configure_now(self.model.limits)
        self.topic_id = self.policy_now().topic.id

    # What is always so.

    @invariant()
    def table_and_counts_are_the_models(self) -> None:
        policy = self.policy_now()

        async def look() -> tuple[inspector.Counts, inspector.QueueState]:
            states = await inspector.states(self.world.pools.rest, [policy.topic], 10_000)
            return await self.world.engine.counters.read(policy), states[self.name]

        (counts, state), span, rows = self.call("counts", look)
        assert rows == self.model.expected()
        assert len(rows) + len(self.model.gone) == self.model.enqueued
        assert self.model.head <= state.head_seq <= self.model.head + self.model.unused
        ready, in_flight, live = self.model.count(span)
        assert ready.holds(counts.ready), f"{counts.ready} ready, not {ready}"
        assert in_flight.holds(counts.in_flight), f"{counts.in_flight} in flight, not {in_flight}"
        assert live.holds(state.count), f"{state.count} live, not {live}"
        assert live.holds(counts.count), f"{counts.count} counted, not {live}"
        assert state.dead_lettered == len(self.model.dead)

    @invariant()
    def dead_letters_are_the_models(self) -> None:
        rows = self.world.run(self.world.rows(self.dead)).values()
        found = [DeadLetter(row.payload, row.priority, row.error, row.origin) for row in rows]
        assert Counter(found) == Counter([*self.buried, *self.model.dead])
        assert {(row.state, row.deliveries, row.expires_at) for row in rows} <= {("ready", 0, None)}

    def teardown(self) -> None:
        """The ledger tells the same story, where there was no failure before the end."""
        failure = sys.exc_info()[1]
        try:
            if failure is None:
                for topic_id, queue in [*self.past, (self.topic_id, self.model)]:
                    self.check_ledger(topic_id, queue)
        except AssertionError as error:
            failure = error
            raise
        finally:
            if isinstance(failure, Exception):
                failure.add_note("\n".join(self.story))
                self.world.failures.append(failure)
            self.delete_now(self.name)
            self.world.run(self.world.stop())

    def check_ledger(self, topic_id: int, queue: Queue) -> None:
        facts = Facts(History(events=self.world.run(ledger(self.world.pools.rest, topic_id))))
        assert facts.impossible == []
        tracks = {seq: track for (_, seq), track in facts.tracks.items()}
        assert {seq: track.word for seq, track in tracks.items()} == dict(queue.finals())
        for job in queue.jobs.values():
            track = tracks[job.seq]
            assert (track.deliveries, track.lease, track.node) == (job.deliveries, job.lease, job.node)
            if job.state == "leased" or (job.state == "scheduled" and job.deliveries > 0):
                assert track.until == pytest.approx(job.visible_at / 1000, abs=0.002)


@pytest.fixture
async def world_url(new_database: Callable[[], Awaitable[str]]) -> str:
    """A database of its own: sweeps go over every topic there is."""
    return await new_database()


@pytest.fixture
def world(world_url: str) -> Iterator[World]:
    world = World(world_url)
    yield world
    world.close()


@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_the_queue_does_what_its_model_does(examples: int, world: World) -> None:
    class Here(QueueMachine):
        def __init__(self) -> None:
            super().__init__(world)

    try:
        run_state_machine_as_test(
            Here,
            settings=settings(
                max_examples=int(os.environ.get("HOLDFAST_TEST_EXAMPLES", examples)),
                stateful_step_count=40,
                print_blob=True,
                derandomize=False,
                # To shrink takes minutes, since leases end in real time: add Phase.shrink by hand, what failed is kept.
                phases=(Phase.explicit, Phase.reuse, Phase.generate),
            ),
        )
    except Flaky as flaky:
        # What depends on time may not come twice. What failed is of more use than that it did not fail again.
        raise world.failures[0] from flaky
