"""Health, vacuum horizon, audit trail and background sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The process's status and version."""

    status: str
    version: str
    uptime_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The service's database answers."""

    status: str
    topics: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry of the audit trail: who changed what, and when."""

    id: int
    at: datetime
    actor: str
    actor_name: str | None
    address: str | None
    action: str
    subject: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class XminPosition:
    """The vacuum horizon: the oldest xmin and its age."""

    xmin: str
    xmin_age: int
    age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Something that holds back the vacuum horizon, with advice how to end it."""

    kind: Literal["session", "replication_slot", "prepared_transaction", "standby"]
    pid: int | None
    application: str | None
    user: str | None
    database: str | None
    client: str | None
    state: str | None
    wait: str | None
    query: str | None
    since: datetime | None
    age_s: float | None
    xmin: str
    xmin_age: int
    name: str | None
    own: bool
    advice: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table's estimates of live and dead rows."""

    name: str
    partitions: int
    live_rows: int
    dead_rows: int
    last_vacuum: datetime | None
    last_autovacuum: datetime | None
    kept_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """What keeps PostgreSQL from removing dead rows, oldest holder first. docs/v0.md."""

    at: datetime
    healthy: bool
    level: Literal["ok", "watch", "bad"]
    verdict: str
    position: XminPosition | None
    holders: tuple[Holder, ...]
    tables: tuple[Table, ...]
    limited: bool
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaperRun:
    """One run of a background sweep."""

    started_at: datetime
    finished_at: datetime | None
    running: bool
    moved: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaper:
    """A background sweep. It runs periodically, by a cron expression, or only on demand."""

    name: str
    every_ms: int | None
    schedule: str | None
    last_run: ReaperRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReaper:
    """The number of rows that a sweep has moved so far, and whether it still runs."""

    moved: int
    running: bool
