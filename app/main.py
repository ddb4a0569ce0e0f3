"""create_app: opens pools, caches and the engine, mounts the edges. The only wiring there is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from app import __version__, keys
from app.admin import pages
from app.api import health, metrics, openapi
from app.api.calls import Service
from app.api.v0 import admin, audit, claims, deletions, diffs, errors, records, settlements, topics, watches, work
from app.api.v0 import keys as key_routes
from app.db.pool import open_pools
from app.edge.access import Access, UnknownKey
from app.edge.context import Context
from app.edge.quota import Gate, Quota
from app.engine.engine import Engine
from app.errors import ConfigurationError, HoldfastError
from app.metrics.slots import Metrics
from app.reapers.loop import Reapers
from app.settings import Settings, is_loopback
from app.signin.directory import Directory
from app.topics.cache import Policies

if TYPE_CHECKING:
    from app.topics.bus import Bus

log = logging.getLogger(__name__)

# Hot ones first: routes are matched in order.
ROUTERS = (
    records.router,
    claims.router,
    settlements.router,
    work.router,
    diffs.router,
    watches.router,
    deletions.router,
    topics.router,
    key_routes.router,
    audit.router,
    health.router,
    metrics.router,
    admin.router,
)


def create_app(settings: Settings, *, slot: int = 0, folder: Path | None = None) -> FastAPI:
    """The service as an ASGI application. Its database must have the current schema.

    `slot` tells the workers of one service apart: 0 … settings.workers - 1; `folder` is where they share their metrics.
    `app.state.stopping()` may be called ahead of the shutdown: streams close, and who waits for work is sent away.
    """
    of_environment = keys.parse(settings.api_keys.get_secret_value())
    counted = Metrics(slot, folder, most_topics=settings.metrics_topics)
    quota = Quota(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Context]]:
        if settings.database_url is None:
            raise ConfigurationError("HOLDFAST_DATABASE_URL is not set")
        pools = await open_pools(
            settings.database_url.get_secret_value(),
            hot=settings.hot_connections,
            rest=settings.rest_connections,
            prepared_statements=settings.prepared_statements,
            numbers=counted,
        )
        directory = Directory(pools.rest, of_environment)
        try:
            await directory.reload()
            _must_not_be_open_to_others(settings, directory)
        except BaseException:
            await pools.close(settings.stop_seconds / 4)
            raise
        access = Access(directory, quota)
        policies = Policies(pools.rest)
        engine = Engine(
            pools,
            policies,
            max_waiting=settings.max_waiting,
            metrics=counted,
            most_topics=settings.metrics_topics,
            max_total_bytes=settings.max_total_bytes,
        )
        reapers = Reapers(pools, engine, phase=slot / settings.workers)
        bus = _bus(settings, counted, policies, engine, directory)
        app.state.stopping = engine.stop
        reapers.start()
        directory.start()
        counted.start()
        try:
            yield {"context": Context(settings, access, quota, pools, policies, engine)}
        finally:
            engine.stop()
            await reapers.stop()
            await directory.stop()
            if bus is not None:
                await bus.stop()
            # What is still under way afterwards is unanswered, and nothing worse.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(engine.drain(), settings.stop_seconds / 2)
            await pools.close(settings.stop_seconds / 4)
            await counted.stop()

    app = Service(
        counted,
        title="Holdfast",
        version=__version__,
        summary="A job queue on PostgreSQL: leased, fenced, durable.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Not include_router: a router in a router costs a quarter of a request's time. Nor telemetry, which looks at
        # the environment on every request.
        routes=[*(route for router in ROUTERS for route in router.routes), *pages.routes()],
        middleware=[Middleware(Gate, quota=quota)],
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for kind in (HoldfastError, HTTPException, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, Exception):
        app.add_exception_handler(kind, errors.show)
    app.add_exception_handler(UnknownKey, errors.look_again)
    app.add_exception_handler(ClientDisconnect, errors.nobody_reads)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _bus(settings: Settings, counted: Metrics, policies: Policies, engine: Engine, directory: Directory) -> Bus | None:
    """Started and told who wants to hear what; None where there is no Redis."""
    if settings.redis_url is None:
        return None
    from app.topics.bus import Bus  # noqa: PLC0415  (start time: who has no Redis loads no client of it)

    def missed() -> None:
        policies.forget_all()
        directory.refresh()

    bus = Bus(settings.redis_url.get_secret_value(), counted)
    bus.on_changed, bus.on_work = policies.forget, engine.heard_of_work
    bus.on_keys, bus.on_missed = directory.refresh, missed
    policies.on_changed, engine.waiters.on_work, directory.on_changed = bus.changed, bus.work, bus.keys
    engine.readers.on_appended = bus.work
    bus.start()
    return bus


def _must_not_be_open_to_others(settings: Settings, directory: Directory) -> None:
    """Raises ConfigurationError where anybody who can reach the address could do anything."""
    if is_loopback(settings.host):
        return
    if not directory.guarded and not settings.allow_insecure_no_auth:
        raise ConfigurationError(
            f"HOLDFAST_HOST={settings.host} is reachable from elsewhere and there is no key: make one with "
            "`keys add`, or set HOLDFAST_API_KEYS, or HOLDFAST_ALLOW_INSECURE_NO_AUTH=1 if that is meant"
        )
    if directory.guarded and not directory.live:
        log.warning("Every key was revoked or has expired, so nobody can sign in: make one with `keys add`")


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        document["components"] = openapi.components()
        document["security"] = openapi.SECURITY
        openapi.add_examples(document)
        app.openapi_schema = document
    return app.openapi_schema
