"""create_app: connects pools, caches, the engine and the routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from app import __version__
from app.base.db.pool import Pools, open_pools
from app.base.metrics import Metrics
from app.base.outages import UNREACHABLE
from app.errors import ConfigurationError, HoldfastError
from app.features import (
    archive,
    audit,
    database,
    dead_letters,
    explain,
    health,
    inbox,
    ingest,
    jobs,
    logs,
    people,
    queue,
    results,
    saved_views,
    schedules,
    schemas,
    sqs,
    stats,
    topics,
    upkeep,
    user_events,
    webhooks,
)
from app.features.upkeep.reapers import Reapers
from app.features.webhooks.http import AllowedTargets
from app.features.webhooks.sender import Sender
from app.http import openapi
from app.http.access import Access, UnknownKey
from app.http.calls import Service
from app.http.context import Context
from app.http.errors import Errors
from app.http.messages.dialect import MESSAGES
from app.http.quota import Gate, Quota
from app.http.signin.directory import Directory
from app.http.signin.sessions import Sessions
from app.http.signin.users import Passwords
from app.http.spans import TracingMiddleware
from app.http.v0 import records
from app.http.v0.dialect import V0
from app.kernel.engine import Core, Engine
from app.kernel.topics import store
from app.kernel.topics.cache import Names, Policies
from app.kernel.topics.hints import Hints, Relay
from app.kernel.topics.policy import Defaults, defaults_of
from app.pages import mount as pages
from app.pages.screens import Screens
from app.settings import Settings, is_loopback, origins_of

if TYPE_CHECKING:
    from app.base.traces import Spans
    from app.kernel.claim.redis_tokens import RedisBuckets
    from app.kernel.topics.bus import Bus
    from app.kernel.topics.tier import Tier

log = logging.getLogger(__name__)

# Routes are matched in this order: hot ones first.
_FEATURES: Final = (
    queue.FEATURE,
    sqs.FEATURE,
    jobs.FEATURE,
    ingest.FEATURE,
    user_events.FEATURE,
    logs.FEATURE,
    dead_letters.FEATURE,
    topics.FEATURE,
    explain.FEATURE,
    results.FEATURE,
    stats.FEATURE,
    people.FEATURE,
    saved_views.FEATURE,
    audit.FEATURE,
    health.FEATURE,
    database.FEATURE,
    archive.FEATURE,
    schemas.FEATURE,
    webhooks.FEATURE,
    schedules.FEATURE,
    inbox.FEATURE,
)
SWEEPS: Final = (*upkeep.sweeps.SWEEPS, *(sweep for feature in _FEATURES for sweep in feature.sweeps))
FEATURES: Final = (*_FEATURES, upkeep.feature(SWEEPS))
# Started before any request, to count waiting pages and hear of finished jobs from the start.
CORES: Final[Sequence[type[Core]]] = (Screens,)
ALL_PAGES: Final = tuple(page for feature in FEATURES for page in feature.pages)

ERRORS: Final = Errors(V0, {"/api": MESSAGES})


def create_app(settings: Settings, *, slot: int = 0, folder: Path | None = None) -> FastAPI:
    """Make the ASGI application. The database must have the current schema.

    `slot` is the number of the worker, 0 … settings.workers - 1. `folder` is where workers share their metrics.
    `app.state.stopping()` may be called before the shutdown: it closes streams and ends waiting calls.
    """
    counted = Metrics(slot, folder, most_topics=settings.metrics_topics)
    quota = Quota(settings)
    spans = _spans(settings, slot)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Context]]:
        try:
            async with _running(app, settings, quota, counted, slot=slot, folder=folder) as context:
                yield {"context": context}
        finally:
            if spans is not None:
                await spans.stop(settings.stop_seconds / 4)

    app = Service(
        counted,
        access_log=settings.access_log,
        title="Holdfast",
        version=__version__,
        summary="A job queue on PostgreSQL: leased, fenced, durable.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # No include_router: nested routers take a quarter of a request's time. No telemetry: it reads the environment
        # on every request.
        routes=[
            *(route for feature in FEATURES for route in feature.mount()),
            *pages.routes(ALL_PAGES),
        ],
        middleware=[
            *([] if spans is None else [Middleware(TracingMiddleware, spans=spans)]),
            Middleware(Gate, quota=quota),
        ],
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for kind in (HoldfastError, HTTPException, *UNREACHABLE, asyncpg.PostgresError, Exception):
        app.add_exception_handler(kind, ERRORS.show)
    app.add_exception_handler(UnknownKey, ERRORS.look_again)
    app.add_exception_handler(ClientDisconnect, ERRORS.nobody_reads)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


@contextlib.asynccontextmanager
async def _running(
    app: FastAPI, settings: Settings, quota: Quota, counted: Metrics, *, slot: int, folder: Path | None
) -> AsyncIterator[Context]:
    """Start everything that lives as long as the application, in order of dependencies, and stop it at the end."""
    if settings.database_url is None:
        raise ConfigurationError("HOLDFAST_DATABASE_URL is not set")
    pools = await open_pools(
        settings.database_url.get_secret_value(),
        hot=settings.hot_connections,
        rest=settings.rest_connections,
        prepared_statements=settings.prepared_statements,
        numbers=counted,
    )
    secret, defaults = settings.jwt_secret, defaults_of(settings)
    directory = Directory(
        pools.rest,
        settings.api_keys,
        token_secret=None if secret is None else secret.get_secret_value().encode(),
    )
    # Before the first load: changes announced by other workers are queued from now on.
    hints, relay = _relay(settings, slot, folder, counted)
    try:
        await directory.reload()
        await store.keep_defaults(pools.rest, defaults)
        _must_not_be_open_to_others(settings, directory)
    except BaseException:
        if relay is not None:
            await relay.stop()
        await pools.close(settings.stop_seconds / 4)
        raise
    sessions = Sessions(pools.rest, directory, Passwords(settings.bcrypt_cost), seconds=settings.token_seconds)
    access = Access(directory, quota, sessions, settings.proxies, local=is_loopback(settings.host))
    redis = _redis(settings, pools, defaults, hints, counted)
    bus, tier, buckets = redis or (None, None, None)
    policies = Policies(pools.rest, defaults, counted, tier)
    engine = Engine(
        pools,
        policies,
        max_waiting=settings.max_waiting,
        metrics=counted,
        most_topics=settings.metrics_topics,
        max_total_bytes=settings.max_total_bytes,
        signs=settings.webhook_secret is not None,
        to_files=settings.archive_to_files,
        processes=settings.workers,
        buckets=buckets,
    )
    sender = _sender(settings, pools, engine)
    _connect(hints, relay, policies, engine, directory)
    for end in (bus, tier):
        if end is not None:
            end.start()
    app.state.stopping = engine.stop
    engine.core(Reapers).start(SWEEPS, phase=slot / settings.workers, schedule=settings.delete_reaper_schedule)
    sender.start()
    directory.start()
    counted.start()
    try:
        more = Names(pools.rest), records.record_of, origins_of(settings.ingest_origins)
        async with _features(engine):
            yield Context(settings, access, quota, pools, policies, engine, *more)
    finally:
        engine.stop()
        await sender.stop()
        await directory.stop()
        # Calls that are still in progress afterwards get no answer.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(engine.drain(), settings.stop_seconds / 2)
        await asyncio.gather(*(end.stop() for end in redis or ()))
        if relay is not None:
            await relay.stop()
        await pools.close(settings.stop_seconds / 4)
        await counted.stop()


@contextlib.asynccontextmanager
async def _features(engine: Engine) -> AsyncIterator[None]:
    """Start the features' cores and background loops, and stop the loops at the end."""
    for core in (*CORES, *(core for feature in FEATURES for core in feature.cores)):
        engine.core(core)
    loops = [loop for feature in FEATURES for loop in feature.loops(engine)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        await asyncio.gather(*(loop.stop() for loop in loops))


def _sender(settings: Settings, pools: Pools, engine: Engine) -> Sender:
    secret = None if settings.webhook_secret is None else settings.webhook_secret.get_secret_value()
    return Sender(pools, engine, allowed=AllowedTargets(*settings.webhook_targets), secret=secret)


def _spans(settings: Settings, slot: int) -> Spans | None:
    """The tracer; None if traces are off. Raises ConfigurationError if its packages are not installed."""
    if settings.traces == "off":
        return None
    try:
        from app.base.traces import Spans  # noqa: PLC0415  (start time: loads OpenTelemetry's SDK)
    except ImportError as error:
        raise ConfigurationError(
            f"HOLDFAST_TRACES={settings.traces} needs the extra `tracing`, which is not installed. "
            f"deploy/requirements/tracing.txt pins its packages: {error}"
        ) from None
    return Spans(__version__, slot)


def _relay(settings: Settings, slot: int, folder: Path | None, counted: Metrics) -> tuple[Hints, Relay | None]:
    """Hints, and the relay to the other workers of this service; None if there are no others."""
    if folder is None or settings.workers == 1:
        return Hints(), None
    hints = Hints(folder.name)
    try:
        return hints, Relay(folder, slot, settings.workers, hints, counted)
    except OSError as error:
        log.warning("Workers can't notify each other of changes, and will find them later: %r", error)
        return Hints(), None


def _connect(hints: Hints, relay: Relay | None, policies: Policies, engine: Engine, directory: Directory) -> None:
    """Connect the senders and receivers of hints, and start the relay."""
    hints.topic_changed.subscribe(policies.forget)
    hints.work_made.subscribe(engine.hear_of_work)
    hints.user_changed.subscribe(engine.users.wake)
    hints.keys_changed.subscribe(directory.refresh)
    hints.missed.subscribe(policies.forget_all)
    hints.missed.subscribe(directory.refresh)
    policies.topic_changed.subscribe(hints.tell_changed)
    engine.waiters.made.subscribe(hints.tell_work)
    engine.readers.grown.subscribe(hints.tell_work)
    engine.users.stored.subscribe(hints.tell_user)
    directory.keys_changed.subscribe(hints.tell_keys)
    if relay is not None:
        relay.start()


def _redis(
    settings: Settings, pools: Pools, defaults: Defaults, hints: Hints, counted: Metrics
) -> tuple[Bus, Tier, RedisBuckets] | None:
    """Redis: the bus, the shared cache of policies, and rate limits. None without a Redis."""
    if settings.redis_url is None:
        return None
    from app.kernel.claim.redis_tokens import RedisBuckets  # noqa: PLC0415  (start time: only with Redis)
    from app.kernel.topics.bus import Bus  # noqa: PLC0415
    from app.kernel.topics.tier import Tier  # noqa: PLC0415

    url = settings.redis_url.get_secret_value()
    # Policies depend on the service's defaults: only services with the same defaults share them.
    tier = Tier(url, pools.rest, counted, variant=repr(defaults))
    return Bus(url, hints, counted, tier=tier), tier, RedisBuckets(url)


def _must_not_be_open_to_others(settings: Settings, directory: Directory) -> None:
    """Raises ConfigurationError for an open service on an address that others can reach."""
    if is_loopback(settings.host):
        return
    if not directory.guarded and not settings.allow_insecure_no_auth:
        raise ConfigurationError(
            f"HOLDFAST_HOST={settings.host} is reachable from other machines, and there is no key or user. Make one "
            "with `keys add` or `users add --admin`, or set HOLDFAST_API_KEYS. To run without sign-in, set "
            "HOLDFAST_ALLOW_INSECURE_NO_AUTH=1"
        )
    if directory.guarded and not directory.live:
        log.warning("There is no live key and no user, so no one can sign in. Make a key with `keys add`")


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        document["components"] = openapi.components()
        document["security"] = openapi.SECURITY
        openapi.add_examples(document)
        openapi.add_links(document)
        openapi.add_request_ids(document)
        app.openapi_schema = document
    return app.openapi_schema
