"""Limits on concurrent requests, streams and bytes of bodies. docs/semantics.md, section 22.

Each process counts for itself, which costs no round trip. With several workers, the limits apply to each.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from app.errors import Throttled

if TYPE_CHECKING:
    from app.base.keys import Key
    from app.settings import Settings

HELD: Final = "holdfast.held"  # in a request's scope, if it holds anything
SMALL_BYTES: Final = 16 * 1024  # smaller bodies are not counted: the limit on connections bounds them

Who = str | bytes  # a key's id, else its digest. Both secrets of a rotated key count as one


class HeldBytes:
    """The quota that one request holds. The Gate gives it back when the request has ended."""

    __slots__ = ("body_bytes", "request_of", "stream", "stream_of")

    def __init__(self) -> None:
        self.request_of: Who | None = None
        self.stream = False
        self.stream_of: Who | None = None
        self.body_bytes = 0


class Quota:
    """The limits and current usage. Nothing waits here: a request that would exceed a limit is refused."""

    def __init__(self, settings: Settings) -> None:
        # 0: no limit. Read on every request that has a key.
        self.requests_per_key = settings.max_requests_per_key
        self._max_streams = settings.max_streams
        self._streams_per_key = settings.max_streams_per_key
        self._max_bytes = settings.max_buffered_bytes
        self._requests: Counter[Who] = Counter()
        self._streams_of: Counter[Who] = Counter()
        self.streams = 0  # open now
        self.body_bytes = 0  # counted now

    def requests(self, key: Key) -> int:
        """How many requests of a key are in progress; 0 if requests are not limited."""
        return self._requests[_who(key)]

    def take_request(self, scope: AsgiScope, key: Key) -> None:
        """Count a request towards its key's limit, once. Raises Throttled."""
        held = _holdings(scope)
        if held.request_of is not None or held.stream:
            return
        who = _who(key)
        if self._requests[who] >= self.requests_per_key:
            raise _refusal("This key has too many requests in progress", "requests_per_key", self.requests_per_key)
        self._requests[who] += 1
        held.request_of = who

    def take_stream(self, scope: AsgiScope, key: Key | None) -> None:
        """From now on, count a request as an open stream instead of a request. Raises Throttled."""
        held = _holdings(scope)
        if self.streams >= self._max_streams:
            raise _refusal("Too many streams are open", "streams", self._max_streams)
        if key is not None:
            who = _who(key)
            if self._streams_per_key and self._streams_of[who] >= self._streams_per_key:
                raise _refusal("This key has too many streams open", "streams_per_key", self._streams_per_key)
            self._streams_of[who] += 1
            held.stream_of = who
        self.streams += 1
        held.stream = True
        if held.request_of is not None:
            _less(self._requests, held.request_of)
            held.request_of = None

    def must_have_room(self, size: int) -> None:
        """Raises Throttled if a body of `size` bytes does not fit now."""
        if self.body_bytes + size > self._max_bytes:
            raise _refusal("The service buffers too many bytes of bodies", "buffered_bytes", self._max_bytes)

    def take_bytes(self, scope: AsgiScope, size: int) -> None:
        """Count `size` more bytes of a request's body until the request ends. Raises Throttled."""
        self.must_have_room(size)
        self.add_bytes(scope, size)

    def add_bytes(self, scope: AsgiScope, size: int) -> None:
        """Count `size` more bytes of a request's body or answer until the request ends, even beyond the limit."""
        self.body_bytes += size
        _holdings(scope).body_bytes += size

    def give_back(self, held: HeldBytes) -> None:
        """Release the quota of a request that has ended."""
        self.body_bytes -= held.body_bytes
        self.streams -= held.stream
        if held.request_of is not None:
            _less(self._requests, held.request_of)
        if held.stream_of is not None:
            _less(self._streams_of, held.stream_of)


class Gate:
    """Middleware that releases each request's quota at its end."""

    def __init__(self, app: ASGIApp, quota: Quota) -> None:
        self._app = app
        self._quota = quota

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            if HELD in scope:
                self._quota.give_back(scope[HELD])


def _holdings(scope: AsgiScope) -> HeldBytes:
    held: HeldBytes | None = scope.get(HELD)
    if held is None:
        held = scope[HELD] = HeldBytes()
    return held


def _who(key: Key) -> Who:
    return key.id or key.digest


def _less(counts: Counter[Who], who: Who) -> None:
    """Decrement a count, and drop it at zero."""
    if counts[who] == 1:
        del counts[who]
    else:
        counts[who] -= 1


def _refusal(what: str, limit: str, most: int) -> Throttled:
    return Throttled(f"{what}. The limit is {most}.", {"limit": limit, "max": most})
