"""The server process: uvicorn on the supervisor's socket, for as long as the supervisor lives."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import uvicorn

from app.base.loops import Loop
from app.errors import ConfigurationError
from app.main import create_app
from app.serve.dispatch import CLOSED, READY, TAKEN
from app.serve.protocol import BoundedProtocol, watch
from app.serve.worker import NUMBERS, SLOT
from app.settings import Settings

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75  # longer than the idle time of usual proxies, so that they close first

PING_SECONDS = 20.0  # between two pings of a WebSocket, and so long one waits for its answer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App(Protocol):
    """An ASGI application as the framework makes them; `state.stopping`, if it is there, is called before the stop."""

    state: Any

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]: ...


def slot() -> int:
    """Which of the workers this process is: 0 … HOLDFAST_WORKERS - 1."""
    return int(os.environ.get(SLOT, "0"))


def numbers() -> Path | None:
    """The folder where the workers share their metrics; None for a single one."""
    return Path(os.environ[NUMBERS]) if NUMBERS in os.environ else None


def run(settings: Settings, door: socket.socket, lifeline: int, build: Callable[[Settings], App] | None = None) -> int:
    """Serve until a signal, or until the other end of the pipe `lifeline` closes. The exit code.

    `door` is a listening socket, or a dispatcher's channel. `build` makes the application: create_app, if it is None.
    Raises ConfigurationError when the application's start refused the configuration.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if settings.log_level == "debug" else logging.WARNING)
    app = create_app(settings, slot=slot(), folder=numbers()) if build is None else build(settings)
    entry = ServedApp(app)
    config = uvicorn.Config(
        entry,
        interface="asgi3",
        loop="uvloop" if find_spec("uvloop") else "asyncio",
        http=cast("type[asyncio.Protocol]", partial(BoundedProtocol, settings)),  # uvicorn only calls it
        ws=cast("type[asyncio.Protocol]", partial(make_socket, settings)),
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.stop_seconds),
    )

    def let_go() -> None:
        stopping: Callable[[], None] | None = getattr(app.state, "stopping", None)
        if stopping is not None:
            stopping()

    handed_out = door.family == socket.AF_UNIX
    try:
        server = Server(config, settings, let_go, lifeline, Intake(door) if handed_out else None)
        server.run(sockets=[] if handed_out else [door])
    except SystemExit as end:
        if entry.refused is not None:
            raise entry.refused from None
        return end.code if isinstance(end.code, int) else 1
    return 0


def make_socket(settings: Settings, **protocol: Any) -> asyncio.Protocol:
    """The protocol of a connection that goes on as a WebSocket."""
    from app.serve.sockets import BoundedSocket  # noqa: PLC0415  (start time: a service without any loads none of it)

    return BoundedSocket(settings, **protocol)


class ServedApp:
    """The application. It tells a start that ended with a ConfigurationError apart from one that ended with a fault."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.refused: ConfigurationError | None = None

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._lifespan if scope["type"] == "lifespan" else self._app)(scope, receive, send)

    async def _lifespan(self, scope: Message, receive: Receive, send: Send) -> None:
        held: list[Message] = []  # Starlette reports a traceback before it raises

        async def hold_failure(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                held.append(message)
            else:
                await send(message)

        try:
            await self._app(scope, receive, hold_failure)
        except ConfigurationError as error:
            self.refused = error
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            await send({"type": "lifespan.startup.failed", "message": ""})
            raise
        except BaseException:
            for message in held:
                await send(message)
            raise


class Server(uvicorn.Server):
    """Ends when the supervisor is gone, and lets long answers go before it waits for connections to close."""

    def __init__(
        self,
        config: uvicorn.Config,
        settings: Settings,
        stopping: Callable[[], None],
        lifeline: int,
        intake: Intake | None,
    ) -> None:
        super().__init__(config)
        self._settings = settings
        self._watching: Loop | None = None
        self._stopping = stopping
        self._lifeline = lifeline
        self._intake = intake

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Nobody writes to the pipe: it becomes readable when the kernel closes the supervisor's end.
        asyncio.get_running_loop().add_reader(self._lifeline, self._stop_orphan)
        # What is alive now stays. Collections that walk it, every 700 objects, took a third of an enqueue's time;
        # a request leaves no cycles behind.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        gc.enable()
        self._watching = watch(cast("set[BoundedProtocol]", self.server_state.connections), self._settings)
        self._watching.start()
        if self._intake is not None:
            self._intake.start(
                limits=self._settings,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._intake is not None:
            await self._intake.stop()
        else:
            await self._take_the_last(sockets or ())
        self._stopping()
        await super().shutdown(sockets)
        if self._watching is not None:
            await self._watching.stop()

    async def _take_the_last(self, doors: Sequence[socket.socket]) -> None:
        """Stop listening, and serve the connections made by then: closed with the socket, they would be reset."""
        connected = []
        for door in doors:
            with suppress(OSError):  # there is no more
                for connection, _ in iter(door.accept, None):
                    connected.append(connection)
        for server in self.servers:
            server.close()
        for connection in connected:
            connection.setblocking(False)
            with suppress(OSError):
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        made: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = made(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def _stop_orphan(self) -> None:
        asyncio.get_running_loop().remove_reader(self._lifeline)
        logging.getLogger(__name__).warning("The supervisor is gone: stopping")
        self.should_exit = True


class Intake:
    """A worker's end of the dispatcher's channel: takes connections from start() to stop(), and reports their ends."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._owed = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, **protocol: Any) -> None:
        """Say that this worker is ready, and serve what comes with a protocol of these arguments."""
        self._protocol = protocol
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._take)
        self._say(READY)

    async def stop(self) -> None:
        """Take the connections that are here, and no more. Later ones go to another worker."""
        while self._take():
            pass
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        await asyncio.gather(*self._tasks)

    def _take(self) -> bool:
        """Take one connection. Returns whether there was one."""
        try:
            word, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            word, descriptors = b"", []
        if not word:
            # The supervisor is gone. The lifeline says so as well, and that ends the process.
            asyncio.get_running_loop().remove_reader(self._channel)
            return False
        self._say(TAKEN)
        if not descriptors:  # this process has as many open as it may: the kernel dropped it
            self._say(CLOSED)
            return True
        task = asyncio.create_task(self._serve(socket.socket(fileno=descriptors[0])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection)
        except OSError:
            connection.close()
            self._say(CLOSED)

    def _make(self) -> asyncio.Protocol:
        return DispatchedProtocol(self, **self._protocol)

    def report_end(self) -> None:
        """A connection has ended."""
        self._say(CLOSED)

    def _say(self, word: bytes) -> None:
        self._owed += word
        with suppress(OSError):  # full, and said with the next word; or closed, and nobody asks
            self._owed = self._owed[self._channel.send(self._owed) :]


class DispatchedProtocol(BoundedProtocol):
    """Tells the intake when its connection has ended."""

    def __init__(self, intake: Intake, **protocol: Any) -> None:
        super().__init__(**protocol)
        self._intake = intake

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._intake.report_end()

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        if socket is not self:
            socket.ended.subscribe(self._intake.report_end)  # type: ignore[attr-defined]  # it is a BoundedSocket from now on
