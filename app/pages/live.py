"""Live updates of pages as server-sent events, at the page's own address. ADR 0057.

The page's handler renders the updates once for all viewers with the same rights.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from app.base.keys import Scope
from app.errors import Forbidden, NotAcceptable, Unauthorized
from app.http.context import Context, context_of
from app.http.credentials import from_another_site
from app.http.sse import EventStream, close, error_frame, push
from app.pages import permissions
from app.pages.render import LIVE, LivePart
from app.pages.screens import Screens, Watcher

EVENTS: Final = "text/event-stream"
BEAT_SECONDS: Final = 10.0  # scripts can't see SSE comments, and must know that the stream is open
BEAT: Final = b"event: beat\ndata: .\n\n"
# A placeholder for the CSRF token in rendered parts that sessions share. Each stream replaces it by its own token.
_PROOF: Final = secrets.token_hex(32).encode()

Handler = Callable[[Request], Awaitable[Response]]


def asks(request: Request) -> bool:
    return request.method == "GET" and EVENTS in request.headers.get("accept", "")


async def stream(request: Request, handler: Handler) -> Response:
    """Stream the live part of a page whenever it changes. The caller has checked that the visitor may see the page.

    Raises Forbidden, NotAcceptable for a page without a live part, Throttled, ShuttingDown, and the handler's errors.
    """
    if from_another_site(request):
        raise Forbidden("Live updates are only for pages of this service.")
    context, visitor = context_of(request), permissions.visitor_of(request)
    key = context.access.check(request, Scope(0), confines=True)  # the page's own permission was checked before
    rights = context.access.rights(request)
    context.quota.take_stream(request.scope, key)
    watcher = Watcher(
        visitor.proof or ("" if key is None else key.id or key.digest.hex()),
        functools.partial(_look, request, handler),
        functools.partial(_check, context, request, rights),
    )
    moved = await _change_counter(context, request)
    screens = context.core(Screens)
    await screens.open((request.url.path, request.url.query, rights), watcher, moved)
    request.scope["endpoint"] = stream  # count it as a stream, and don't time it as a page
    return PageStream(screens, watcher, visitor.proof.encode())


class PageStream(EventStream):
    """Sends the live part of a page until the client disconnects or the stream must end."""

    def __init__(self, screens: Screens, watcher: Watcher, proof: bytes) -> None:
        super().__init__()
        self._screens = screens
        self._watcher = watcher
        self._proof = proof

    async def _release(self) -> None:
        self._screens.close(self._watcher)

    async def _serve(self, send: Send, leaving: asyncio.Future[None]) -> None:
        watcher = self._watcher
        leaving.add_done_callback(lambda _: watcher.more.set())
        await push(send, BEAT)
        quiet_since = time.monotonic()
        while not leaving.done():
            watcher.more.clear()
            if watcher.error is not None:
                await close(send, error_frame(watcher.error))
                return
            content = watcher.next()
            if content is not None:
                await push(send, frame(content.replace(_PROOF, self._proof)))
            elif time.monotonic() - quiet_since >= BEAT_SECONDS:
                await push(send, BEAT)
            else:
                await _wait(watcher.more, quiet_since + BEAT_SECONDS - time.monotonic())
                continue
            quiet_since = time.monotonic()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()


def frame(html: bytes) -> bytes:
    """Encode a part of a page as an event. Line ends in the HTML, CR included, must not end a line of the event."""
    lines = html.strip().replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"event: page\n%b\n\n" % b"\n".join(b"data: " + line for line in lines)


async def _look(request: Request, handler: Handler) -> bytes:
    """Render the live part with the visitor's rights, but for no particular session."""
    headers = [(name, value) for name, value in request.scope["headers"] if name not in {b"accept", b"hx-target"}]
    scope = {**request.scope, "headers": [*headers, (b"hx-target", LIVE.encode())]}
    visitor = permissions.visitor_of(request)
    # Set it even for a visitor without a session, such as a script with a key: other viewers may have one.
    scope[permissions.VISITOR] = replace(visitor, proof=_PROOF.decode())
    answer = await handler(Request(scope))
    if not isinstance(answer, LivePart):
        raise NotAcceptable("This page has no live updates.")
    return bytes(answer.body)


def _check(context: Context, request: Request, rights: Hashable) -> None:
    """Raises Unauthorized if the visitor's rights have changed: the rest of their page is outdated then."""
    if context.access.rights(request) != rights:
        raise Unauthorized("Your permissions changed. Load the page again.")


async def _change_counter(context: Context, request: Request) -> Callable[[], Hashable]:
    """Return a function whose value changes when jobs of the page's topic change. It is constant for other pages."""
    name = request.path_params.get("topic")
    policy = None if name is None else await context.policies.get_before_auth(name)
    return (lambda: 0) if policy is None else functools.partial(context.engine.motion, policy.topic.id)
