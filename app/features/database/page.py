"""/v0/admin/horizon and its page /admin/horizon: the holders of PostgreSQL's xmin horizon."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.db import health
from app.base.db.health import OLD_SECONDS, HolderKind, Horizon, HorizonHolder, Table
from app.base.times import duration
from app.http.context import context_of
from app.http.route import Call
from app.pages.render import page

FEW_ROWS: Final = 100  # tables with fewer rows, live and dead, are left out

_KINDS: Final = {
    HolderKind.SESSION: "Session",
    HolderKind.SLOT: "Replication slot",
    HolderKind.PREPARED: "Prepared transaction",
    HolderKind.STANDBY: "Standby",
}


class HorizonAnswer(Horizon, frozen=True):
    """The holders of PostgreSQL's xmin horizon, oldest first, at most 100."""


class HolderRow(msgspec.Struct, frozen=True):
    """A holder as the page shows it. Unknown fields are ""."""

    kind: str
    title: str
    who: str
    age: str
    behind: int
    state: str
    query: str
    advice: str
    command: str
    old: bool
    own: bool


class TableRow(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    live: int
    dead: int
    kept: str
    vacuumed: str


async def get_horizon(call: Call) -> Horizon:
    """List the sessions, slots and standbys that keep PostgreSQL from removing dead rows, oldest first, with advice."""
    return await health.read_horizon(call.context.pools.rest)


async def show(request: Request) -> Response:
    """Render the page. Raises the errors of app.base.db.health.read_horizon."""
    current = await health.read_horizon(context_of(request).pools.rest)
    return page(
        request,
        "horizon.html",
        title="Horizon",
        horizon=current,
        age=_age(current),
        dead=sum(table.dead_rows for table in current.tables),
        old_seconds=OLD_SECONDS,
        holders=[_holder(holder) for holder in current.holders],
        tables=[_table(table, current.at) for table in current.tables if table.dead_rows + table.live_rows >= FEW_ROWS],
    )


def _age(current: Horizon) -> str:
    if current.position is None:
        return "none"
    return "unknown" if current.position.age_s is None else duration(current.position.age_s * 1000)


def _holder(holder: HorizonHolder) -> HolderRow:
    title = holder.name if holder.name is not None else holder.application or "no application name"
    place = " from ".join(filter(None, (holder.user, holder.client)))
    return HolderRow(
        kind=_KINDS[holder.kind],
        title=title,
        who=", ".join(filter(None, (f"PID {holder.pid}" if holder.pid is not None else "", place))),
        age="unknown" if holder.age_s is None else duration(holder.age_s * 1000),
        behind=holder.xmin_age,
        state=", ".join(filter(None, (holder.state, _wait(holder.wait)))) or "hidden",
        query=holder.query or "",
        advice=holder.advice,
        command=holder.command or "",
        old=holder.old,
        own=holder.own,
    )


def _wait(wait: str | None) -> str:
    """A wait event in words. Idle sessions wait for their client; their state says that already."""
    return "" if wait is None or wait == "Client: ClientRead" else f"waits for {wait}"


def _table(table: Table, now_ms: int) -> TableRow:
    ends = [at for at in (table.last_vacuum, table.last_autovacuum) if at is not None]
    return TableRow(
        name=table.name,
        partitions=table.partitions,
        live=table.live_rows,
        dead=table.dead_rows,
        kept="unknown" if table.kept_rows is None else f"{table.kept_rows:,}",
        vacuumed=f"{duration(max(now_ms - max(ends), 0))} ago" if ends else "never",
    )
