"""Background requeues and cancels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

OperationState = Literal["canary", "running", "done", "cancelled", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueFilter:
    """Selects jobs to requeue, which must match all fields. `error`: a part of the last error. `cluster`: its kind."""

    error: str | None = None
    tag: str | None = None
    key: str | None = None
    tenant: str | None = None
    older_than_ms: int | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """Requeues `first` jobs at first. If more than `stop_at_percent` of them fail again, the operation stops.
    docs/dead-letters.md."""

    first: int | None = None
    stop_at_percent: float | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """How many jobs a requeue or cancel matches, and the operation's id, None for a dry run. `exact`: False if there
    may be more."""

    id: str | None
    matched: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The progress of a requeue or cancel. For a cancel: `gone` counts deleted waiting jobs, `marked` leased jobs."""

    id: str
    topic: str
    state: OperationState
    reason: str | None
    matched: int
    exact: bool
    requeued: int
    skipped: int
    failed_again: int
    rate: int
    cancelled: bool
    started_at: datetime
    ended_at: datetime | None
    requested_by: str
    kind: Literal["requeue", "cancel"] = "requeue"
    gone: int = 0
    marked: int = 0

    @property
    def over(self) -> bool:
        """Whether the operation has ended."""
        return self.state not in ("canary", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """A topic's newest operations, up to 20, running ones first."""

    topic: str
    operations: tuple[Operation, ...]
