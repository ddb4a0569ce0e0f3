"""Live pages: the address of a page answers with events where they are asked for. ADR 0057.

The page's own function makes what is sent, with the rights of whoever looks, once for all who may see the same.
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
BEAT_SECONDS: Final = 10.0  # a script can't hear comments, and has to know that the stream is open
BEAT: Final = b"event: beat\ndata: .\n\n"
# In place of what forms of a session have to send, in what sessions share; nobody is shown it.
_PROOF: Final = secrets.token_hex(32).encode()

Handler = Callable[[Request], Awaitable[Response]]


def asks(request: Request) -> bool:
    """Whether this asks for events, as browsers' EventSource does."""
    return request.method == "GET" and EVENTS in request.headers.get("accept", "")


async def stream(request: Request, handler: Handler) -> Response:
    """The live part of a page as events, whenever it has changed. The reader was allowed to see the page.

    Raises Forbidden, NotAcceptable for a page on which nothing moves, Throttled, ShuttingDown, what the handler raises.
    """
    if from_another_site(request):
        raise Forbidden("This is for pages of this service.")
    context, visitor = context_of(request), permissions.visitor_of(request)
    key = context.access.check(request, Scope(0), confines=True)  # what the page takes was asked already
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
    request.scope["endpoint"] = stream  # counted as what it is, and not timed as a page
    return PageStream(screens, watcher, visitor.proof.encode())


class PageStream(EventStream):
    """Sends what moves on a page until the reader leaves or the stream must end."""

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
    """A part of a page as an event. What anybody has written must not end a frame's line: in HTML all line ends are
    one."""
    lines = html.strip().replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"event: page\n%b\n\n" % b"\n".join(b"data: " + line for line in lines)


async def _look(request: Request, handler: Handler) -> bytes:
    """The live part of the page as it is now, with the caller's rights, and for no particular session."""
    headers = [(name, value) for name, value in request.scope["headers"] if name not in {b"accept", b"hx-target"}]
    scope = {**request.scope, "headers": [*headers, (b"hx-target", LIVE.encode())]}
    visitor = permissions.visitor_of(request)
    # Also for who has none, as a script that shows a key: others who see the same may have one.
    scope[permissions.VISITOR] = replace(visitor, proof=_PROOF.decode())
    answer = await handler(Request(scope))
    if not isinstance(answer, LivePart):
        raise NotAcceptable("Nothing moves on this page.")
    return bytes(answer.body)


def _check(context: Context, request: Request, rights: Hashable) -> None:
    """Raises Unauthorized if the caller's rights have changed: the rest of their page shows the former ones."""
    if context.access.rights(request) != rights:
        raise Unauthorized("What you may see and do has changed: load the page again.")


async def _change_counter(context: Context, request: Request) -> Callable[[], Hashable]:
    """A function whose value changes with a topic's jobs, for a topic's page; for other pages it never changes."""
    name = request.path_params.get("topic")
    policy = None if name is None else await context.policies.get_before_auth(name)
    return (lambda: 0) if policy is None else functools.partial(context.engine.motion, policy.topic.id)
