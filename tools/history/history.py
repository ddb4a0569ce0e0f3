"""What clients saw of a service, their calls with the outcomes and what they were handed; and what the database knows,
its ledger and its table of jobs. tools/chaos/record.py has the file of the clients.

Times are in ms since 1970 by the database's clock, to which those of clients are right but for `History.skew`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf


class Outcome(Enum):
    """DONE: answered, and it was done. REFUSED: answered, and nothing was done. IN_DOUBT: no answer, or one that
    says nothing; it may have been done, and may still be."""

    DONE = "done"
    REFUSED = "refused"
    IN_DOUBT = "in doubt"


class Verb(Enum):
    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Topic:
    """What a topic was made as, where that is not a plain queue. `max_deliveries` 0: as many as it takes."""

    name: str
    is_log: bool = False
    max_deliveries: int = 0


@dataclass(frozen=True, slots=True)
class Enqueue:
    """A batch of jobs, or of a log's records, by the ids in their payloads. `seqs` in the same order when it is DONE. A
    batch that is tried again is tried whole, with the same ids.

    `unique`: it came with an idempotency key, or each job with a dedupe id, of its own; so trying again adds nothing.
    Beside the ids, where they have any: `groups`, `keys`, and `ttls` in ms, 0 for none."""

    ids: tuple[int, ...]
    sent: float
    ended: float
    outcome: Outcome
    seqs: tuple[int, ...] = ()
    topic: str = ""
    unique: bool = False
    groups: tuple[str | None, ...] = ()
    keys: tuple[str | None, ...] = ()
    ttls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A call that asked for jobs. Those that it got are deliveries; one in doubt may have leased some unseen. `short`:
    it got fewer than it asked for, so its worker was idle."""

    sent: float
    ended: float
    outcome: Outcome
    topic: str = ""
    short: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job as a claim handed it out. `number`: its count of deliveries. `sent`, `ended`: of the claim. `intact`: the
    payload is the one that was enqueued. `origin`: the topic and the seq at which it died, of a dead letter."""

    id: int
    seq: int
    lease: str
    number: int
    deadline: int
    lease_ms: int
    sent: float
    ended: float
    intact: bool = True
    topic: str = ""
    origin: tuple[str, int] | None = None

    @property
    def claimed(self) -> int:
        """When the lease began, by the database's clock: it sets the deadline from the same instant."""
        return self.deadline - self.lease_ms


@dataclass(frozen=True, slots=True)
class Settlement:
    """What was done with one lease. REFUSED: it was among the skipped. `deadline`: the new one of an EXTEND, which is
    for `lease_ms`. `delay_ms`, `refund`: of a NACK."""

    verb: Verb
    seq: int
    lease: str
    sent: float
    ended: float
    outcome: Outcome
    deadline: int = 0
    topic: str = ""
    lease_ms: int = 0
    delay_ms: int = 0
    refund: bool = False


@dataclass(frozen=True, slots=True)
class Burial:
    """A dead letter as it was found at the end: of which job of which topic, by that job's seq."""

    id: int
    seq: int
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the ledger: holdfast.lease_events has what it means (docs/semantics.md, section 13)."""

    topic: str
    seq: int
    at: float
    event: str
    deliveries: int = 0
    lease: str | None = None
    node: str | None = None
    until: float | None = None
    detail: str | None = None

    def __str__(self) -> str:
        where = f"seq {self.seq} of {self.topic}" if self.topic else f"seq {self.seq}"
        return f"{where}: {self.event}, delivery {self.deliveries}, lease {self.lease}"


@dataclass(frozen=True, slots=True)
class Row:
    """A job that is in the table at the end. `id`: that of its payload."""

    topic: str
    seq: int
    state: str
    id: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader of a log was told by one answer or frame, in order: seqs and ids. `reader` "" is the look at all of
    the log after the end."""

    reader: str
    records: tuple[tuple[int, int], ...]
    at: float = 0.0
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Outage:
    """From a fault until it was over and calls of each kind that were sent after that had been answered. `lifted`: when
    it was over."""

    began: float
    ended: float
    kind: str = ""
    lifted: float = 0.0


@dataclass(frozen=True, slots=True)
class Surprise:
    """An answer that no fault explains, a crash of the harness' own parts, a line of the database's log that must not
    be there."""

    what: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """What was found when all had been drained. `left`: rows, by the table or the gauge that should have none.
    `damage`: what amcheck says of the database's files."""

    deadlocks: int = 0
    left: dict[str, int] = field(default_factory=dict)
    damage: tuple[str, ...] = ()


@dataclass(slots=True)
class History:
    """All of a run, in no order. What is not in `rows` is not there any more: where nobody looked, the queue must have
    been drained. `events`: all of the ledger, or nothing.

    `patience`: how many times as slow as the machine that the bounds in time are for this one is; inf: there are none.
    `skew`: by how many ms a client may be wrong about the database's clock."""

    topics: list[Topic] = field(default_factory=list)
    enqueues: list[Enqueue] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    burials: list[Burial] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    surprises: list[Surprise] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    patience: float = 1.0
    skew: float = 0.0


NEVER = inf  # when a call ended whose caller did not live to see it
