"""What a client saw of the service: its calls with their outcomes, and the jobs that it was handed.

Times are in ms since 1970. The clients and PostgreSQL run on one machine, so their clocks are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


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


@dataclass(frozen=True, slots=True)
class Enqueue:
    """A batch of jobs by the ids in their payloads. `seqs` in the same order when it is DONE. A batch that is tried
    again is tried whole, with the same ids."""

    ids: tuple[int, ...]
    sent: float
    ended: float
    outcome: Outcome
    seqs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job as a claim handed it out. `number`: its count of deliveries. `sent`, `ended`: of the claim. `intact`: the
    payload is the one that was enqueued."""

    id: int
    seq: int
    lease: str
    number: int
    deadline: int
    lease_ms: int
    sent: float
    ended: float
    intact: bool = True

    @property
    def claimed(self) -> int:
        """When the lease began, by the database's clock: it sets the deadline from the same instant."""
        return self.deadline - self.lease_ms


@dataclass(frozen=True, slots=True)
class Settlement:
    """What was done with one lease. REFUSED: it was among the skipped. `deadline`: the new one of an EXTEND."""

    verb: Verb
    seq: int
    lease: str
    sent: float
    ended: float
    outcome: Outcome
    deadline: int = 0


@dataclass(frozen=True, slots=True)
class Outage:
    """From a kill until calls of each kind that were sent after it had been answered."""

    began: float
    ended: float


@dataclass(slots=True)
class History:
    """All of a run, in no order. It must end with a drained queue: what is not there any more was acked."""

    enqueues: list[Enqueue] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
