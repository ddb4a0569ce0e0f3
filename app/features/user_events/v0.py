"""/v0/users/:id/token and /v0/users/:id/events: streams of events for the application's users. docs/webhooks.md."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import asyncpg
import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.base.keys import Scope
from app.base.outages import UNREACHABLE, as_unavailable
from app.errors import (
    Forbidden,
    HoldfastError,
    InvalidRequest,
    PayloadTooLarge,
    ShuttingDown,
    Unauthorized,
    Unavailable,
)
from app.http.bounds import about
from app.http.context import Context, context_of
from app.http.credentials import authorization, bearer, query_token
from app.http.dialect import write_error
from app.http.fields import encode, known_parameters
from app.http.openapi import events, header, path, query
from app.http.payloads import check_json
from app.http.route import Call
from app.http.signin.tokens import EventsTokenClaims
from app.http.sse import ADVICE_SECONDS, HEARTBEAT, EventStream, close, error_frame, must_accept_events, one_line, push
from app.http.users import MAX_USER_ID, allow_origin
from app.kernel.topics.settings import BIGINT_MAX, ONE_DAY_MS
from app.kernel.user_events import Listener, NewUserEvent, UserEvent, Users

HEARTBEAT_SECONDS: Final = 15.0
MAX_EVENT_BYTES: Final = 64 * 1024
HOUR_MS: Final = 3_600_000
# Events of the service itself.
RESERVED: Final = frozenset({"completed", "failed", "dead_lettered", "missed", "error"})
MISSED: Final = b"event: missed\ndata: {}\n\n"

USER: Final = path(
    "id",
    "The application's id of the user.",
    {"type": "string", "minLength": 1, "maxLength": MAX_USER_ID, "pattern": "^[^/\\u0000]*$"},
)


class UserTokenBody(msgspec.Struct, forbid_unknown_fields=True):
    """The life of a token."""

    ttl_ms: Annotated[
        Annotated[int, Meta(ge=1_000, le=ONE_DAY_MS)] | None,
        about("The token's life in ms, rounded up to seconds.", HOUR_MS),
    ] = None


class UserTokenAnswer(msgspec.Struct):
    """A token for the stream of this user's events. `expires_at` is in ms since 1970."""

    user_id: str
    token: str
    expires_at: int


class UserEventBody(msgspec.Struct, forbid_unknown_fields=True):
    """An event for a user."""

    event: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*\Z",
            extra_json_schema={"pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]*$", "not": {"enum": sorted(RESERVED)}},
        ),
        about("The event's name on the stream."),
    ]
    data: Annotated[Raw | UnsetType, about("Any JSON of up to 64 KiB. Absent: null.")] = UNSET


class UserEventAnswer(msgspec.Struct):
    """`id`: the event's id on the stream. The ids of a user's events ascend."""

    user_id: str
    id: int


async def token(call: Call, body: UserTokenBody) -> UserTokenAnswer:
    """Create a token for a user's browser. It gives access to the stream of the user's events, and to `/in` of public
    topics."""
    user_id = _user_in(call.request)
    tokens = await call.context.access.directory.signer()
    made, until = tokens.make_for_events(user_id, -(-(body.ttl_ms or HOUR_MS) // 1000))
    return UserTokenAnswer(user_id, made, until * 1000)


async def send(call: Call, body: UserEventBody) -> UserEventAnswer:
    """Send an event to a user. It goes to open streams, and for some minutes to streams that reconnect."""
    user_id = _user_in(call.request)
    if body.event in RESERVED:
        raise InvalidRequest(f"The event name {body.event!r} is reserved for the service.")
    data = b"null" if isinstance(body.data, UnsetType) else bytes(body.data)
    if len(data) > MAX_EVENT_BYTES:
        raise PayloadTooLarge(f"data must have at most {MAX_EVENT_BYTES} bytes.", {"max_bytes": MAX_EVENT_BYTES})
    check_json(data)
    new = await call.context.engine.users.send(NewUserEvent(user_id, body.event, one_line(data).decode()))
    return UserEventAnswer(user_id, new)


_FRAMES = """retry: 2000

: hb

id: 7
event: progress
data: {"percent":40}

id: 8
event: completed
data: {"topic":"mail","seq":2,"id":"00000001-0000-8000-8000-000000000002"}

event: missed
data: {}

event: error
data: {"code":401,"error":"unauthorized","message":"This token has expired. Request a new one."}

"""
_AFTER = {"type": "string", "pattern": "^[0-9]{1,19}$"}
LISTEN: Final = [
    USER,
    query("token", "The user's token, for browsers' EventSource.", {"type": "string"}),
    query("last_event_id", "Like the header Last-Event-ID, which has precedence. 0: all stored events.", _AFTER),
    header("Last-Event-ID", "The last event that the reader has. Absent: only new events.", _AFTER),
]
QUERY: Final = {"token", "last_event_id"}
STREAM: Final = events(
    "First `retry: 2000` and a comment. Then the user's events by name. completed, failed and dead_lettered are the "
    "ends of jobs. missed: events since Last-Event-ID may have been deleted. A comment follows 15 s without another "
    "frame. After an event error with code 429, the stream goes on. An error with 401 (the token has expired) or 503 "
    "(the service is stopping) is the last event.",
    _FRAMES,
)


async def listen(call: Call) -> Response:
    """Stream the user's events as server-sent events, or with `Upgrade: websocket` as messages of a WebSocket."""
    request, context = call.request, call.context
    claims = await _claims(request, context, request.path_params["id"])
    known_parameters(request, QUERY)
    user_id = _user_in(request)
    must_accept_events(request.headers.get("accept"))
    listener, missed, left = await _open(request, context, user_id, claims)
    stream = UserStream(context.engine.users, listener, left, missed=missed)
    stream.headers.update(allow_origin(request))
    return stream


async def _open(
    request: HTTPConnection, context: Context, user_id: str, claims: EventsTokenClaims | None
) -> tuple[Listener, bool, Callable[[], None]]:
    """Open a listener. Returns it, whether it may have missed events, and a function that cancels its end by the token.

    Raises InvalidRequest, Throttled, Unavailable.
    """
    after = _after(request)
    context.quota.take_stream(request.scope, None)
    listener, missed = await context.engine.users.open(user_id, after)
    if claims is None:
        left = context.access.watch(None, listener.end)
    else:
        error = Unauthorized("This token has expired. Request a new one.")
        left = asyncio.get_running_loop().call_later(claims.until - time.monotonic(), listener.end, error).cancel
    return listener, missed, left


async def listen_by_socket(socket: WebSocket) -> None:
    """Stream the user's events over a WebSocket, as text messages. Messages from the client are ignored."""
    context = context_of(socket)
    try:
        claims = await _claims(socket, context, socket.path_params["id"])
        if claims is None and "access-control-allow-origin" not in allow_origin(socket):
            # Browsers let any page open and read a WebSocket.
            context.access.check(socket, Scope(0))
        known_parameters(socket, QUERY)
        user_id = _user_in(socket)
        listener, missed, left = await _open(socket, context, user_id, claims)
    except (HoldfastError, asyncpg.PostgresError, *UNREACHABLE) as error:
        refusal = error if isinstance(error, HoldfastError) else as_unavailable(error)
        if refusal is None:
            raise
        headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
        await socket.send_denial_response(Response(write_error(refusal), refusal.status, headers, "application/json"))
        return
    leaving = asyncio.ensure_future(_wait_until_left(socket))
    leaving.add_done_callback(lambda _: listener.more.set())
    try:
        await socket.accept()
        if missed:
            await socket.send_text('{"event":"missed","data":{}}')
        await _send_events(socket, context.engine.users, listener, leaving)
    except WebSocketDisconnect:
        pass  # the client has disconnected
    finally:
        leaving.cancel()
        left()
        context.engine.users.close(listener)


async def _send_events(socket: WebSocket, users: Users, listener: Listener, leaving: asyncio.Future[None]) -> None:
    while not leaving.done():
        if (ending := listener.error) is not None:
            await socket.send_text(_error_message(ending, ending.status))
            await socket.close(1012 if isinstance(ending, ShuttingDown) else 1008)
            return
        try:
            found = await users.next(listener, HEARTBEAT_SECONDS)
        except Unavailable as error:  # the stream goes on
            await socket.send_text(_error_message(error, 429))
            await asyncio.wait([leaving], timeout=ADVICE_SECONDS)
            continue
        for event in found:
            await socket.send_text(f'{{"id":{event.id},"event":"{event.event}","data":{event.data}}}')
        users.sent.add(len(found))


async def _wait_until_left(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _error_message(error: HoldfastError, code: int) -> str:
    data = {"code": code, "error": error.code, "message": error.message}
    return encode({"event": "error", "data": data}).decode()


class UserStream(EventStream):
    """Sends a user's events until the client disconnects or the stream must end."""

    def __init__(self, users: Users, listener: Listener, left: Callable[[], None], *, missed: bool) -> None:
        super().__init__()
        self._users = users
        self._listener = listener
        self._left = left
        self._missed = missed

    async def _release(self) -> None:
        self._left()
        self._users.close(self._listener)

    async def _serve(self, send: Send, leaving: asyncio.Future[None]) -> None:
        users, listener = self._users, self._listener
        leaving.add_done_callback(lambda _: listener.more.set())
        if self._missed:
            await push(send, MISSED)
        quiet_since = time.monotonic()
        while not leaving.done():
            if listener.error is not None:
                await close(send, error_frame(listener.error))
                return
            try:
                found = await users.next(listener, quiet_since + HEARTBEAT_SECONDS - time.monotonic())
            except Unavailable as error:  # the stream goes on
                await push(send, error_frame(error, 429))
                await asyncio.wait([leaving], timeout=ADVICE_SECONDS)
                continue
            if found:
                await push(send, *map(_frame, found))
                users.sent.add(len(found))
            elif time.monotonic() - quiet_since >= HEARTBEAT_SECONDS:
                await push(send, HEARTBEAT)
            else:
                continue
            quiet_since = time.monotonic()


def _frame(event: UserEvent) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.id, event.event.encode(), event.data.encode())


async def _claims(request: HTTPConnection, context: Context, user_id: str) -> EventsTokenClaims | None:
    directory = context.access.directory
    if not directory.guarded:
        return None
    given = bearer(authorization(request)) or query_token(request)
    claims = (await directory.signer()).read_for_events(given) if given else None
    if claims is None:
        raise Unauthorized("A token of POST /v0/users/<id>/token is required.")
    if claims.user_id != user_id:
        raise Forbidden("This token is for another user.")
    return claims


def _after(request: HTTPConnection) -> int | None:
    given: Any = request.headers.get("last-event-id") or request.query_params.get("last_event_id")
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 19 and int(given) <= BIGINT_MAX):
        raise InvalidRequest("Last-Event-ID is not valid. Use the id of an event of this route.")
    return int(given)


def _user_in(request: HTTPConnection) -> str:
    user_id: str = request.path_params["id"]
    if b"%2f" in request.scope.get("raw_path", b"").lower():
        raise InvalidRequest("A user's id can't have a '/' here.")
    if len(user_id) > MAX_USER_ID or "\0" in user_id:
        raise InvalidRequest(f"A user's id must have 1 to {MAX_USER_ID} characters, and no NUL.")
    return user_id
