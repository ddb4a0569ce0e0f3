"""A connection with limits on sizes and times. docs/semantics.md, section 22.

uvicorn accepts headers of any size and waits for ever. Sizes are checked as data arrives, for some dozens of
nanoseconds per request. Times cost a request nothing: a loop checks all connections periodically and remembers their
state."""

from __future__ import annotations

import asyncio
import re
from enum import Enum, auto
from typing import Any, Final

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.base.log import request_id
from app.base.loops import Loop
from app.errors import HeadersTooLarge, HoldfastError, InvalidRequest, RequestTimeout, Unavailable, UriTooLong
from app.main import ERRORS
from app.settings import Settings

MAX_HEADERS: Final = 100
MAX_TARGET_BYTES: Final = 8 * 1024  # path and query
MAX_PIPELINED: Final = 16  # waiting requests on a connection
LEAST_RATE: Final = 64 * 1024  # bytes that extend the time limit of a body or an answer by a second
LINGER_SECONDS: Final = 2.0  # how long to read what a refused client still sends: a reset could destroy the answer
REFUSED_AT_ONCE: Final = 256  # connections beyond the limit that get an answer; others are closed without one
LOOKS: Final = 4  # least checks of a connection within the shortest time limit
LONGEST_TICK: Final = 1.0
FIRST_SECONDS: Final = 0.5  # for a request that is on its way at a stop
IN_A_ROW: Final = 500  # connections checked before the event loop continues: half a millisecond


class Phase(Enum):
    """What a connection is waiting for."""

    NOTHING = auto()  # nothing from its client: it is idle between requests, or the service is working
    HEADER = auto()
    BODY = auto()
    READER = auto()
    END = auto()  # it was refused


_SOCKET: Final = re.compile(rb"/v0/users/[^/?]+/events(\?|\Z)")  # targets with a WebSocket
NOTHING: Final = Phase.NOTHING  # used for every connection, and enum members are slow to look up


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `limits` are the settings of the process."""

    def __init__(self, limits: Settings, **protocol: Any) -> None:
        super().__init__(**protocol)
        self.url = b""  # the incoming request's target, as far as received
        self._limits = limits
        self._header_bytes = limits.max_header_bytes
        self._loose_bytes = limits.max_header_bytes + MAX_TARGET_BYTES + 1024
        self._loose = 0  # bytes since the last complete header or part of a body: they belong to a header or trailer
        self._body = 0  # bytes of bodies, of all requests
        self._refusal: HoldfastError | None = None
        self._refused = False
        # State for `look`: the phase, when it began, its message, and its progress.
        self._phase = NOTHING
        self._since = 0.0
        self._message: object = None
        self._mark = self._done = 0

    def shutdown(self) -> None:
        """Finish the current request and close. A new connection without a request gets a moment more: a proxy can't
        repeat a request that it has already sent."""
        asked: object = self.cycle
        if asked is None:
            self.loop.call_later(FIRST_SECONDS, super().shutdown)
        else:
            super().shutdown()

    # Input.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most, now = self._limits.max_connections, len(self.connections)
        if now > most + REFUSED_AT_ONCE:
            transport.abort()
        elif now > most:
            detail = {"limit": "connections", "max": most}
            self.refuse(Unavailable(f"Too many connections are open. The limit is {most}.", detail))

    def data_received(self, data: bytes) -> None:
        # Like uvicorn's, with one call less, and without logging malformed requests.
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._loose += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.refuse(self._refusal or InvalidRequest("This is not HTTP/1.1."))
        except httptools.HttpParserUpgrade:
            # Upgrades to other protocols are ignored, and the request is answered.
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return
        if self._loose > self._loose_bytes:
            self.refuse(self._headers_too_large())

    def on_headers_complete(self) -> None:
        # Compute the exact size only if the header may be too large.
        if self._loose > self._header_bytes or len(self.headers) > MAX_HEADERS:
            self._check_headers()
        self._loose = 0
        if len(self.url) > MAX_TARGET_BYTES:
            raise self._refusing(
                UriTooLong(
                    f"Path and query are longer than {MAX_TARGET_BYTES} bytes.",
                    {"limit": "target_bytes", "max": MAX_TARGET_BYTES},
                )
            )
        if len(self.pipeline) >= MAX_PIPELINED:
            raise self._refusing(
                InvalidRequest(
                    f"More than {MAX_PIPELINED} requests wait on this connection.",
                    {"limit": "pipelined", "max": MAX_PIPELINED},
                )
            )
        HttpToolsProtocol.on_headers_complete(self)  # a good deal faster than by super()

    def on_body(self, body: bytes) -> None:
        self._loose = 0
        self._body += len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def _should_upgrade(self) -> bool:
        # Only after an answered request, and on paths with a WebSocket. Other requests are answered without an upgrade.
        answered = self.cycle is None or self.cycle.response_complete
        return answered and _SOCKET.match(self.url) is not None and super()._should_upgrade()

    def _check_headers(self) -> None:
        if len(self.headers) > MAX_HEADERS:
            raise self._refusing(
                HeadersTooLarge(
                    f"There are more than {MAX_HEADERS} header fields.", {"limit": "headers", "max": MAX_HEADERS}
                )
            )
        if sum(len(name) + len(value) + 4 for name, value in self.headers) > self._header_bytes:
            raise self._refusing(self._headers_too_large())

    def _headers_too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"The header fields are larger than {self._header_bytes} bytes.",
            {"limit": "header_bytes", "max": self._header_bytes},
        )

    def _refusing(self, error: HoldfastError) -> HoldfastError:
        """Remember an error that is raised within the parser to stop it. Returns it."""
        self._refusal = error
        return error

    # Output.

    def refuse(self, error: HoldfastError) -> None:
        """Send an error, unless an answer has begun, and close the connection."""
        transport = self.transport
        if self._refused or transport.is_closing():
            return
        self._refused = True
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if answering and (cycle.response_started or cycle.scope is not self.scope or self.pipeline):
            transport.close()
            return
        if answering:
            # Tell the application that its answer is no longer needed.
            cycle.disconnected = True
            cycle.message_event.set()
        transport.write(_render(error, self.url, request_id(self.headers or ())))
        transport.write_eof()
        self.flow.resume_reading()
        self._unset_keepalive_if_required()
        transport.set_protocol(_Lingering(self))

    # Time limits.

    def look(self, now: float) -> None:
        """Close the connection if its client is too slow. `now`: of the event loop's clock."""
        phase = self._phase_now()
        if phase is NOTHING:
            self._phase = phase
            return
        # A slow reader stays one, even if it sends data meanwhile.
        if phase is not self._phase or (phase is not Phase.READER and self.scope is not self._message):
            self._phase, self._since, self._message, self._done = phase, now, self.scope, 0
            self._mark = self.transport.get_write_buffer_size() if phase is Phase.READER else self._body
            return
        waited = now - self._since
        match phase:
            case Phase.HEADER:
                if waited >= self._limits.header_seconds:
                    self._no_header()
            case Phase.BODY:
                if waited >= self._limits.body_seconds + (self._body - self._mark) / LEAST_RATE:
                    self.refuse(RequestTimeout("The body took too long.", {"limit": "body_seconds"}))
            case Phase.READER:
                left = self.transport.get_write_buffer_size()
                self._done += max(0, self._mark - left)
                self._mark = left
                if waited >= self._limits.write_seconds + self._done / LEAST_RATE:
                    self.transport.abort()
            case Phase.END:
                if waited >= LINGER_SECONDS:
                    self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._phase = NOTHING  # the client has read most of the buffer

    def _phase_now(self) -> Phase:
        if self._refused:
            return Phase.END
        if self.transport.get_write_buffer_size():
            return Phase.READER
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return Phase.HEADER if self.timeout_keep_alive_task is None else NOTHING
        # If reading is paused, or another request comes first, the service keeps the client waiting.
        ours = self.flow.read_paused or self.pipeline or cycle.response_started
        return Phase.BODY if cycle.more_body and not ours else NOTHING

    def _no_header(self) -> None:
        if self.scope is None or (self.cycle is not None and self.cycle.scope is self.scope):
            self.transport.close()  # no part of a request has arrived
        else:
            self.refuse(RequestTimeout("The request's header took too long.", {"limit": "header_seconds"}))


class _Lingering(asyncio.Protocol):
    """A refused connection until its client closes it. Drops further data."""

    def __init__(self, refused: BoundedProtocol) -> None:
        self._refused = refused

    def connection_lost(self, exc: Exception | None) -> None:
        self._refused.connection_lost(exc)


def watch(connections: set[BoundedProtocol], limits: Settings) -> Loop:
    """A loop that checks all connections periodically."""
    tick = min(LONGEST_TICK, min(limits.header_seconds, limits.body_seconds, limits.write_seconds) / LOOKS)

    async def once() -> None:
        now = asyncio.get_running_loop().time()
        for place, connection in enumerate(list(connections)):
            connection.look(now)
            if place % IN_A_ROW == IN_A_ROW - 1:
                await asyncio.sleep(0)

    return Loop("look at connections", once, tick, first=tick)


def _render(error: HoldfastError, target: bytes, named: bytes) -> bytes:
    """The whole answer, in the dialect of the request's target, as far as that has arrived."""
    path = target.partition(b"?")[0].decode("latin-1")
    body = ERRORS.dialect(path).write_error(error)
    again = b"" if error.retry_after is None else b"retry-after: %d\r\n" % error.retry_after
    return b"%b%bx-request-id: %b\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        STATUS_LINE[error.status],
        b"content-type: application/json\r\n",
        named,
        again,
        len(body),
        body,
    )
