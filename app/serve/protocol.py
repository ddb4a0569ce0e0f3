"""A connection, with bounds on what its client can send, and on how long it can take. docs/semantics.md, section 22.

uvicorn's parser takes headers of any size, and waits for ever. What is bounded by size is looked at as it comes in, for
some dozens of nanoseconds a request. What is bounded by time costs a request nothing: a watch looks at all connections
once in a while, and remembers what it saw of each.
"""

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
MAX_PIPELINED: Final = 16  # requests that wait on a connection while another is being answered
LEAST_RATE: Final = 64 * 1024  # bytes a second that extend the time for a body or an answer by a second
LINGER_SECONDS: Final = 2.0  # what a refused client still sends is taken for so long: a reset could swallow the answer
REFUSED_AT_ONCE: Final = 256  # connections beyond the bound that are told so; more are closed without a word
LOOKS: Final = 4  # of the watch, at least, in the shortest time that is allowed for anything
LONGEST_TICK: Final = 1.0
FIRST_SECONDS: Final = 0.5  # in which a request that is on its way comes in
IN_A_ROW: Final = 500  # connections looked at before others have a turn: half a millisecond


class Phase(Enum):
    """What a connection is seen to wait for."""

    NOTHING = auto()  # of its client: it is idle between requests, or we are at work
    HEADER = auto()
    BODY = auto()
    READER = auto()
    END = auto()  # it was refused


_SOCKET: Final = re.compile(rb"/v0/users/[^/?]+/events(\?|\Z)")  # targets that have a WebSocket
NOTHING: Final = Phase.NOTHING  # looked at for every connection, and an enum's member is slow to find


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `limits` are the settings of the process."""

    def __init__(self, limits: Settings, **protocol: Any) -> None:
        super().__init__(**protocol)
        self.url = b""  # of the request that is coming in, as far as it has
        self._limits = limits
        self._header_bytes = limits.max_header_bytes
        self._loose_bytes = limits.max_header_bytes + MAX_TARGET_BYTES + 1024
        self._loose = 0  # bytes since a header was complete or a body had more: of a header or a trailer, then
        self._body = 0  # bytes of bodies, of all requests
        self._refusal: HoldfastError | None = None
        self._refused = False
        # What the watch saw: in which phase it is, since when, in which message; how far it was, and how far it came.
        self._phase = NOTHING
        self._since = 0.0
        self._message: object = None
        self._mark = self._done = 0

    def shutdown(self) -> None:
        """The server stops: finish what was asked, and close. Who has connected and asked nothing yet is heard for a
        moment: a proxy may repeat a request elsewhere where it could not connect, and not once it has sent it."""
        asked: object = self.cycle
        if asked is None:
            self.loop.call_later(FIRST_SECONDS, super().shutdown)
        else:
            super().shutdown()

    # What comes in.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most, now = self._limits.max_connections, len(self.connections)
        if now > most + REFUSED_AT_ONCE:
            transport.abort()
        elif now > most:
            detail = {"limit": "connections", "max": most}
            self.refuse(Unavailable(f"Too many connections are open; {most} are the most.", detail))

    def data_received(self, data: bytes) -> None:
        # As uvicorn does it, in one call less, and without a line in the log for whatever is not HTTP.
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._loose += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.refuse(self._refusal or InvalidRequest("This is not HTTP/1.1."))
        except httptools.HttpParserUpgrade:
            # To a protocol that is not spoken here: the request is answered as it is.
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return
        if self._loose > self._loose_bytes:
            self.refuse(self._headers_too_large())

    def on_headers_complete(self) -> None:
        # A header that came with less than this can't be too large: the sum is left to those that might be.
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
        # After an answered request, and on the paths that have a WebSocket: all others answer as without an upgrade.
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
        """To be raised within the parser, which stops then."""
        self._refusal = error
        return error

    # What goes out.

    def refuse(self, error: HoldfastError) -> None:
        """Say this, if nothing else is being said, and close the connection."""
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
            # The application learns that nobody waits for its answer any more.
            cycle.disconnected = True
            cycle.message_event.set()
        transport.write(_render(error, self.url, request_id(self.headers or ())))
        transport.write_eof()
        self.flow.resume_reading()
        self._unset_keepalive_if_required()
        transport.set_protocol(_Lingering(self))

    # What takes time.

    def look(self, now: float) -> None:
        """Close the connection if its client has been too slow. `now`: of the event loop's clock."""
        phase = self._phase_now()
        if phase is NOTHING:
            self._phase = phase
            return
        # A slow reader is one whatever it sends meanwhile.
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
        self._phase = NOTHING  # it has read most of what lay here

    def _phase_now(self) -> Phase:
        if self._refused:
            return Phase.END
        if self.transport.get_write_buffer_size():
            return Phase.READER
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return Phase.HEADER if self.timeout_keep_alive_task is None else NOTHING
        # Where reading is paused, or somebody else's turn is first, it is we who keep the client waiting.
        ours = self.flow.read_paused or self.pipeline or cycle.response_started
        return Phase.BODY if cycle.more_body and not ours else NOTHING

    def _no_header(self) -> None:
        if self.scope is None or (self.cycle is not None and self.cycle.scope is self.scope):
            self.transport.close()  # nothing of a request has come
        else:
            self.refuse(RequestTimeout("The request's header took too long.", {"limit": "header_seconds"}))


class _Lingering(asyncio.Protocol):
    """A refused connection until its client has closed: what still comes is dropped."""

    def __init__(self, refused: BoundedProtocol) -> None:
        self._refused = refused

    def connection_lost(self, exc: Exception | None) -> None:
        self._refused.connection_lost(exc)


def watch(connections: set[BoundedProtocol], limits: Settings) -> Loop:
    """Looks at every connection again and again."""
    tick = min(LONGEST_TICK, min(limits.header_seconds, limits.body_seconds, limits.write_seconds) / LOOKS)

    async def once() -> None:
        now = asyncio.get_running_loop().time()
        for place, connection in enumerate(list(connections)):
            connection.look(now)
            if place % IN_A_ROW == IN_A_ROW - 1:
                await asyncio.sleep(0)

    return Loop("look at connections", once, tick, first=tick)


def _render(error: HoldfastError, target: bytes, named: bytes) -> bytes:
    """The whole answer, in the envelope of the dialect that was asked, as far as the request's target has come."""
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
