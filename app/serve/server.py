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
from app.serve.intake import Intake
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
    """The folder where the workers share what they count; None for a single one."""
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
    """The application, with a start that a ConfigurationError ended told apart from one that a fault ended."""

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
        asyncio.get_running_loop().add_reader(self._lifeline, self._orphaned)
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
        """Stop listening, and serve who has connected by then: closed with the socket, they would be reset."""
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

    def _orphaned(self) -> None:
        asyncio.get_running_loop().remove_reader(self._lifeline)
        logging.getLogger(__name__).warning("The supervisor is gone: stopping")
        self.should_exit = True
