"""The server process: uvicorn on the supervisor's socket, while the supervisor lives."""

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
KEEP_ALIVE_SECONDS = 75  # longer than common proxies' idle timeout, so that they close first

PING_SECONDS = 20.0  # interval and timeout of a WebSocket's pings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App(Protocol):
    """An ASGI application. `state.stopping`, if present, is called before the stop."""

    state: Any

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]: ...


def slot() -> int:
    """The number of this worker, 0 … HOLDFAST_WORKERS - 1."""
    return int(os.environ.get(SLOT, "0"))


def numbers() -> Path | None:
    """The folder in which workers share their metrics; None for a single worker."""
    return Path(os.environ[NUMBERS]) if NUMBERS in os.environ else None


def run(settings: Settings, door: socket.socket, lifeline: int, build: Callable[[Settings], App] | None = None) -> int:
    """Serve until a signal, or until the other end of the pipe `lifeline` closes. Returns the exit code.

    `door` is a listening socket or a dispatcher's channel. `build` makes the application; default: create_app. Raises
    ConfigurationError if the application refuses the configuration.
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

    def on_stop() -> None:
        stopping: Callable[[], None] | None = getattr(app.state, "stopping", None)
        if stopping is not None:
            stopping()

    handed_out = door.family == socket.AF_UNIX
    try:
        server = Server(config, settings, on_stop, lifeline, Intake(door) if handed_out else None)
        server.run(sockets=[] if handed_out else [door])
    except SystemExit as end:
        if entry.refused is not None:
            raise entry.refused from None
        return end.code if isinstance(end.code, int) else 1
    return 0


def make_socket(settings: Settings, **protocol: Any) -> asyncio.Protocol:
    """The protocol of a connection after an upgrade to a WebSocket."""
    from app.serve.sockets import BoundedSocket  # noqa: PLC0415  (start time: loaded with the first WebSocket)

    return BoundedSocket(settings, **protocol)


class ServedApp:
    """Wraps the application to remember a ConfigurationError of its start."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.refused: ConfigurationError | None = None

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._lifespan if scope["type"] == "lifespan" else self._app)(scope, receive, send)

    async def _lifespan(self, scope: Message, receive: Receive, send: Send) -> None:
        held: list[Message] = []  # Starlette sends a traceback before it raises

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
    """Stops when the supervisor is gone. At a stop it ends long answers before it waits for connections to close."""

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
        # The pipe has no data. It becomes readable when the supervisor's end is closed.
        asyncio.get_running_loop().add_reader(self._lifeline, self._stop_orphan)
        # Objects that are alive now stay alive, and requests leave no cycles. Collections after every 700 objects would
        # take a third of an enqueue's time.
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
        """Stop listening, and serve the connections in the backlog, which would otherwise be reset."""
        connected = []
        for door in doors:
            with suppress(OSError):  # no more connections
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
    """A worker's end of the dispatcher's channel. Takes connections from start() to stop(), and reports their ends."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._owed = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, **protocol: Any) -> None:
        """Report that this worker is ready, and serve connections. `protocol`: arguments of DispatchedProtocol."""
        self._protocol = protocol
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._take)
        self._say(READY)

    async def stop(self) -> None:
        """Take the connections in the channel, then stop. Later ones go to another worker."""
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
            # The supervisor is gone. The lifeline ends this process.
            asyncio.get_running_loop().remove_reader(self._channel)
            return False
        self._say(TAKEN)
        if not descriptors:  # the kernel dropped it, because this process has reached its limit of open files
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
        """Report that a connection has ended."""
        self._say(CLOSED)

    def _say(self, word: bytes) -> None:
        self._owed += word
        with suppress(OSError):  # full: sent with the next byte; closed: no longer needed
            self._owed = self._owed[self._channel.send(self._owed) :]


class DispatchedProtocol(BoundedProtocol):
    """Reports the connection's end to the intake."""

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
