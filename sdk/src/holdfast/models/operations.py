"""Requeues and cancels of many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

OperationState = Literal["canary", "running", "done", "cancelled", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueFilter:
    """Which jobs to requeue: those that have all of it. `error` is a part of the last error; `cluster` its kind."""

    error: str | None = None
    tag: str | None = None
    key: str | None = None
    tenant: str | None = None
    older_than_ms: int | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """So many go first; if more than so many per cent of them are out again, the rest stays. docs/dead-letters.md."""

    first: int | None = None
    stop_at_percent: float | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """How many jobs a requeue or cancel is for (`exact`: and no more), and its operation's id, None of a dry run."""

    id: str | None
    matched: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """How far a requeue or cancel is. Of a cancel: `gone`, those that waited; `marked`, those that are leased."""

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
        """Whether it has come to an end."""
        return self.state not in ("canary", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """A topic's requeues and cancels, the newest 20 or fewer, those under way before others."""

    topic: str
    operations: tuple[Operation, ...]
