"""create_app: opens pools, caches and the engine, mounts the edges. The only wiring there is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app import __version__, keys
from app.api import health, metrics, openapi
from app.api.access import Access
from app.api.calls import Service
from app.api.context import Context
from app.api.v0 import claims, errors, records, settlements, topics, work
from app.db.pool import open_pools
from app.engine.engine import Engine
from app.errors import ConfigurationError, HoldfastError
from app.metrics.slots import Metrics
from app.reapers.loop import Reapers
from app.settings import Settings
from app.topics.bus import Bus
from app.topics.cache import Policies

# Hot ones first: routes are matched in order.
ROUTERS = (records.router, claims.router, settlements.router, work.router, topics.router, health.router, metrics.router)


def create_app(settings: Settings, numbers: Metrics | None = None) -> FastAPI:
    """The service as an ASGI application. Its database must have the current schema.

    `app.state.stopping()` may be called ahead of the shutdown: streams close, and who waits for work is sent away.
    `numbers` are those of the process's slot, where several share a port.
    """
    counted = numbers or Metrics(most_topics=settings.metrics_topics)
    access = Access(keys.parse(settings.api_keys.get_secret_value()))

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
        policies = Policies(pools.rest)
        engine = Engine(
            pools,
            policies,
            max_waiting=settings.max_waiting,
            max_streams=settings.max_streams,
            metrics=counted,
            most_topics=settings.metrics_topics,
        )
        reapers = Reapers(pools, engine)
        bus = None if settings.redis_url is None else Bus(settings.redis_url.get_secret_value(), counted)
        if bus is not None:
            bus.on_changed, bus.on_missed, bus.on_work = policies.forget, policies.forget_all, engine.heard_of_work
            policies.on_changed, engine.waiters.on_work = bus.changed, bus.work
            bus.start()
        app.state.stopping = engine.stop
        reapers.start()
        counted.start()
        try:
            yield {"context": Context(settings, access, pools, policies, engine)}
        finally:
            engine.stop()
            await reapers.stop()
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
        routes=[route for router in ROUTERS for route in router.routes],
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for kind in (HoldfastError, HTTPException, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, Exception):
        app.add_exception_handler(kind, errors.show)
    app.add_exception_handler(ClientDisconnect, errors.nobody_reads)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        document["components"] = openapi.components()
        document["security"] = openapi.SECURITY
        app.openapi_schema = document
    return app.openapi_schema
