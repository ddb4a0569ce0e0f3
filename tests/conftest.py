"""The real thing for every test: a PostgreSQL, one database for each worker process, and the service over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx
import hypothesis
import pytest
import uvicorn
from httpx._transports import default as transports
from pydantic import SecretStr

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from app.base.db.pool import Pools, open_pools
from app.http.context import Context
from app.kernel.engine import Engine
from app.kernel.topics import store
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from app.main import create_app
from app.serve.server import KEEP_ALIVE_SECONDS
from app.settings import Settings
from tests import pgbouncer

# A machine that stands still for a moment is no slow strategy.
hypothesis.settings.register_profile("holdfast", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("holdfast")

# A client reads the machine's certificates, which takes 20 ms of a processor, and there are thousands: one for all.
transports.create_ssl_context = functools.cache(transports.create_ssl_context)  # type: ignore[attr-defined]
# httpcore tries to import it several times a request; that it is missing is found out once.
sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]

TEST_CONNECTIONS = 500  # tests start many services at once, of twenty connections each


def pytest_report_header(config: pytest.Config) -> str:
    return f"PostgreSQL of the tests: {_source()[1]}{', behind PgBouncer' if pgbouncer.ASKED else ''}"


def _source() -> tuple[str, str]:
    """Which PostgreSQL the tests use, and why: HOLDFAST_TEST_DATABASE_URL, a container, or the embedded one."""
    if os.environ.get("HOLDFAST_TEST_DATABASE_URL"):
        return "url", "HOLDFAST_TEST_DATABASE_URL"
    if _engine_answers():
        return "container", "a container (an engine answers)"
    return "embedded", "embedded (no container engine answers)"


def _engine_answers() -> bool:
    host = os.environ.get("DOCKER_HOST", "")
    paths = [host.removeprefix("unix://")] if host.startswith("unix://") else []
    paths += ["/var/run/docker.sock", str(Path.home() / ".docker/run/docker.sock")]
    for path in paths:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except OSError:
                continue
            return True
    return host.startswith("tcp://")


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """A PostgreSQL server that this worker may do anything to, short of stopping it."""
    with _server() as url, pgbouncer.between(url):
        yield url


@contextlib.contextmanager
def _server() -> Iterator[str]:
    kind = _source()[0]
    if kind == "url":
        yield os.environ["HOLDFAST_TEST_DATABASE_URL"]
    elif kind == "container":
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
        from testcontainers.community.postgres import PostgresContainer

        # As the embedded one has it.
        prepares = "postgres -c max_prepared_transactions=20"
        with PostgresContainer("postgres:18", driver=None).with_command(prepares) as container:
            yield container.get_connection_url()
    else:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
        postgres = EmbeddedPostgres(folder, connections=TEST_CONNECTIONS, unsafe_fast=True)
        try:
            yield postgres.start()
        finally:
            postgres.stop(0)  # nobody needs the checkpoint of some hundred databases
            # Nor waits for their files to be gone, which takes ten seconds and more.
            subprocess.Popen(["rm", "-rf", folder], start_new_session=True)


@pytest.fixture(scope="session")
async def empty_database(server_url: str) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Makes further databases on this worker's server, empty ones or copies of another. They go with it at the end, or
    are dropped where it stays: a drop takes seconds."""
    made: list[str] = []

    async def make(template: str = "template1") -> str:
        name = f"holdfast_{secrets.token_hex(6)}"
        await _on(server_url, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        made.append(name)
        url = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
        if pgbouncer.ASKED:
            await pgbouncer.hang_settings_on_role(url)
        return url

    yield make
    for name in made if _source()[0] == "url" else ():
        await _on(server_url, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
async def template(empty_database: Callable[..., Awaitable[str]]) -> str:
    """The name of a database with the current schema and nothing in it."""
    url = await empty_database()
    await schema.upgrade(url)
    return urlsplit(url).path[1:]


@pytest.fixture(scope="session")
async def new_database(empty_database: Callable[..., Awaitable[str]], template: str) -> Callable[[], Awaitable[str]]:
    """Makes further databases with the current schema: copies, as migrations take seconds."""
    return functools.partial(empty_database, template)


async def _on(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
async def database_url(new_database: Callable[[], Awaitable[str]]) -> str:
    """This worker's database, with the current schema."""
    return await new_database()


@pytest.fixture(scope="session")
async def pools(database_url: str) -> AsyncIterator[Pools]:
    """The pools as the service has them."""
    pools = await open_pools(database_url, hot=8, rest=4, prepared_statements=True)
    yield pools
    await pools.close(5)


@pytest.fixture
async def connect(
    database_url: str,
) -> AsyncIterator[Callable[[], Awaitable[asyncpg.Connection[asyncpg.Record]]]]:
    """Opens connections of a test's own, with the hot pool's planner settings; closed afterwards."""
    from app.base.db.pool import PLANNER

    opened: list[asyncpg.Connection[asyncpg.Record]] = []

    async def open_one() -> asyncpg.Connection[asyncpg.Record]:
        connection = await asyncpg.connect(database_url, server_settings={"timezone": "UTC", **PLANNER})
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.terminate()


@pytest.fixture(scope="session")
async def policies(pools: Pools) -> Policies:
    return Policies(pools.rest)


@pytest.fixture(scope="session")
async def engine(pools: Pools, policies: Policies) -> AsyncIterator[Engine]:
    """An engine on this worker's database."""
    engine = Engine(pools, policies, max_waiting=10_000)
    yield engine
    engine.stop()
    await engine.drain()


_numbers = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A topic's name that no other test has."""
    return f"t{next(_numbers)}-{secrets.token_hex(3)}"


@pytest.fixture
def make_queue(pools: Pools, policies: Policies) -> Callable[..., Awaitable[Policy]]:
    """Creates a queue by name, with settings of the v0 dialect; its policy."""

    async def make(name: str, **settings: object) -> Policy:
        asked = AskedSettings(**{"type": "queue", **settings})
        await store.put(pools.rest, name, resolve(name, asked))
        policies.forget(name)
        return await policies.queue(name)

    return make


class Running:
    """A service in this process, listening on a port of its own, or on one that another has had."""

    def __init__(self, settings: Settings, *, port: int = 0) -> None:
        settings = pgbouncer.settings_through(settings)
        self.app = create_app(settings)
        self._socket = socket.create_server((settings.host, port), backlog=1024)
        # Inherited by what it accepts. asyncio does so itself, but only for sockets that were made naming TCP.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            self.app,
            http="httptools",
            lifespan="on",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise AssertionError("the service did not start")
            await asyncio.sleep(0.005)

    @property
    def context(self) -> Context:
        """What its routes share."""
        context: Context = self._server.lifespan.state["context"]
        return context

    def waiting(self, topic: str) -> int:
        """How many callers wait for work on a topic."""
        return self.context.engine.waiters.count(topic)

    async def stop(self) -> None:
        self.app.state.stopping()
        self._server.should_exit = True
        assert self._serving is not None
        await self._serving


@contextlib.asynccontextmanager
async def _starter(database_url: str) -> AsyncIterator[Callable[..., Awaitable[Running]]]:
    running: list[Running] = []

    async def start(**settings: object) -> Running:
        service = Running(Settings.model_validate({"database_url": SecretStr(database_url), **settings}))
        await service.start()
        running.append(service)
        return service

    yield start
    await asyncio.gather(*(service.stop() for service in running))


@pytest.fixture(scope="module")
async def serve(database_url: str) -> AsyncIterator[Callable[..., Awaitable[Running]]]:
    """Starts further services on this worker's database, with settings of their own."""
    async with _starter(database_url) as start:
        yield start


@pytest.fixture(scope="session")
async def service(database_url: str) -> AsyncIterator[Running]:
    """The service that this worker's tests share. Its sweeps look after whatever topics there are."""
    async with _starter(database_url) as start:
        yield await start()


@pytest.fixture
async def http(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    async with httpx.AsyncClient(base_url=service.url, timeout=35) as client:
        yield client
