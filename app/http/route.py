"""A route, declared once: the check of who calls, the reading of the body, the count of the call, its description and
the tests' table of who may do what come from the declaration."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from fastapi.routing import APIRoute
from fastapi.utils import deep_dict_update
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from app.base.keys import Key, Scope
from app.http import openapi
from app.http.body import read_json
from app.http.context import Context, context_of
from app.http.dialect import Dialect
from app.http.fields import known_parameters, topic_in
from app.kernel.topics.policy import Policy, check_name

LARGE_BYTES = 64 * 1024  # an answer up to this size is sent and forgotten

# With another status than the first; a response as it is; None: no body.
Given = msgspec.Struct | tuple[int, msgspec.Struct] | Response | None

_ANY: Final = frozenset({400, 401, 403, 503})
_OF_BODIES: Final = frozenset({413, 415})


class Call(msgspec.Struct, frozen=True):
    """A request whose key may do what its route does. `key` is None where everything is open; `topic` is the one that
    the path names, "" where it names none. `began`: when it came, by time.perf_counter."""

    request: Request
    context: Context
    key: Key | None
    topic: str = ""
    began: float = 0.0

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Which topics a list may show, by the starts of their names; none for all."""
        return () if self.key is None else self.key.prefixes

    async def queue(self) -> Policy:
        """The queue that the path names. Raises TopicNotFound, NotAQueue."""
        return await self.context.policies.queue(check_name(self.topic))


class _What(msgspec.Struct, frozen=True):
    method: str
    path: str
    do: Callable[..., Awaitable[Given]]
    gives: Mapping[int, type[msgspec.Struct] | None]


class Route(_What, frozen=True, kw_only=True):
    """`do` gets the call, and the body where the route `takes` one; its docstring is the route's description.

    - gives: answers by status, the usual one first.
    - refuses: with what, beside what any call may meet: 404 where the path names something, unless that need not be
      there (`finds`), 413 and 415 where there is a body.
    - parameters: of the query, and of the path but for {topic}, as OpenAPI has them.
    - empty: what no body stands for; b"": there must be one. decoder: reads the body in place of msgspec's own.
    - described: what OpenAPI says besides, or instead.
    - verb: what the call is counted as, unless that is the feature's name and the function's.
    - scope: a key needs it, for the topic in the path if there is one; None: anybody may call.
    - server: for every topic, as this is about the whole server.
    - consumes, confines, query_token: as Access.check has them.
    - own_check: `do` checks by itself, as the scope isn't all that counts, and then the parameters; its call has no
      key and no topic.
    - reloads: a process that knows of no key and no user looks into the database first, as this makes them.
    - hot: `do` reads the body by itself, and answers with a response, as enqueue, claim and ack are to cost no more
      than they must. It is counted by its function's name. Any of several bodies that it `takes` will do.
    """

    dialect: Dialect
    scope: Scope | None
    server: bool = False
    consumes: bool = False
    confines: bool = False
    query_token: bool = False
    own_check: bool = False
    reloads: bool = False
    hot: bool = False
    takes: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] = ()
    empty: bytes = b""
    finds: bool = True
    parameters: Sequence[dict[str, Any]] = ()
    refuses: frozenset[int] = frozenset()
    verb: str | None = None
    decoder: Any = None
    described: Mapping[str, Any] = {}

    @property
    def needs(self) -> str:
        """The scopes of a key that may call it, in words."""
        if self.scope is None:
            return "none"
        return "+".join(self.scope.words) or ("token" if self.own_check else "any")

    def mount(self, feature: str) -> Direct:
        """The route as the application has it, named and counted as its feature's."""
        usual = next(iter(self.gives))
        described = openapi.operation(
            parameters=[*([openapi.TOPIC] if "{topic}" in self.path else ()), *self.parameters],
            body=self.takes,
            body_required=not self.empty,
            answers={
                status: None if answer is None else self.dialect.gives(answer) for status, answer in self.gives.items()
            },
            errors=sorted(self._refusals()),
            open_to_all=self.scope is None,
            error=self.dialect.error,
        )
        deep_dict_update(described, dict(self.described))
        return Direct(
            self.path,
            self._endpoint(feature, usual),
            methods=[self.method],
            tags=[self.dialect.name if self.dialect.one_tag else feature],
            status_code=usual,
            response_class=Response,
            response_model=None,
            openapi_extra=described,
        )

    def parameters_of(self, place: str) -> set[str]:
        """The names of those in the query, or the path."""
        return {one["name"] for one in self.parameters if one["in"] == place}

    def _refusals(self) -> frozenset[int]:
        named = frozenset({404}) if self.finds and "{" in self.path else frozenset()
        of_keys = frozenset() if self.scope is None else _ANY
        # What can be wrong: an unknown parameter, a value of one, a name, a body.
        if not (self.dialect.strict or self.takes or "{topic}" in self.path or self.parameters_of("query")):
            of_keys -= {400}
        return of_keys | self.refuses | named | (_OF_BODIES if self.takes else frozenset())

    def _gate(self) -> Callable[[Request, float], Call]:
        """What refuses who may not call this: made once, as hot routes are let in by it, too."""
        if self.own_check:
            return lambda request, began: Call(request, context_of(request), None, "", began)
        scope, server, consumes, confines = self.scope, self.server, self.consumes, self.confines
        query_token, named = self.query_token, "{topic}" in self.path
        # Behind the topic's name, which ends at the first slash, there may be others.
        topic_of = (lambda request: str(request.path_params["topic"])) if ":path}" in self.path else topic_in

        def let_in(request: Request, began: float) -> Call:
            """Raises Unauthorized, Forbidden, Throttled."""
            context = context_of(request)
            topic = topic_of(request) if named else ""
            if scope is None:
                key = None
            elif server:
                key = context.access.check_server(request)
            else:
                key = context.access.check(
                    request, scope, topic or None, consumes=consumes, confines=confines, query_token=query_token
                )
            return Call(request, context, key, topic, began)

        return let_in

    def _endpoint(self, feature: str, usual: int) -> Callable[..., Any]:
        do, let_in = self.do, self._gate()

        def hot(request: Request) -> Awaitable[Given]:
            return do(let_in(request, time.perf_counter()))

        if self.hot:  # not a coroutine around its own: that would be one more for each call
            return self._with_count(hot, feature)
        decoder = self.decoder or (msgspec.json.Decoder(self.takes) if isinstance(self.takes, type) else None)
        names = self.parameters_of("query") if self.dialect.strict and not self.own_check else None

        async def endpoint(request: Request) -> Response:
            began = time.perf_counter()
            if self.reloads:
                await _reload_open(request)
            call = let_in(request, began)
            if names is not None:
                known_parameters(request, names)
            if decoder is None:
                given = await do(call)
            else:
                most = call.context.settings.max_body_bytes
                given = await do(call, await read_json(request, decoder, most, empty=self.empty))
            if given is None:
                return Response(status_code=usual)
            if isinstance(given, Response):
                return given
            status, answer = given if isinstance(given, tuple) else (usual, given)
            return self.dialect.write(answer, status, began)

        return self._with_count(endpoint, feature)

    def _with_count(self, endpoint: Callable[..., Any], feature: str) -> Callable[..., Any]:
        verb = self.verb or (self.do.__name__ if self.hot else f"{feature}_{self.do.__name__}")
        # Not functools.wraps: FastAPI would look for parameters of what is wrapped.
        endpoint.__name__, endpoint.__doc__ = self.do.__name__, self.do.__doc__
        endpoint.counted_as = self.dialect.name, verb  # type: ignore[attr-defined]
        return endpoint


async def _reload_open(request: Request) -> None:
    """Where the process knows of no key and no user: look whether there is one by now."""
    directory = context_of(request).access.directory
    if not directory.guarded:
        await directory.reload()


class Direct(APIRoute):
    """A route whose function takes the request and answers with a response.

    What FastAPI does around a function (dependencies, exit stacks, serialisation) would be done for nothing, and takes
    a third of the time of a single claim. Errors go to the application's handlers as ever.
    """

    def __init__(self, path: str, endpoint: Any, **options: Any) -> None:
        super().__init__(path, endpoint, **options)

        async def app(scope: Connection, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            response = await endpoint(request)
            if len(getattr(response, "body", b"")) > LARGE_BYTES:
                await _send_large(request, response, send)
            else:
                await response(scope, receive, send)

        self.app = app


async def _send_large(request: Request, response: Response, send: Send) -> None:
    """Send an answer whose bytes count as held until its client has read them. Raises Throttled for a GET, which has
    changed nothing, where too many are held already."""
    quota = context_of(request).quota
    if request.method == "GET":
        quota.must_have_room(0)
    quota.add_bytes(request.scope, len(response.body))
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})  # the server waits here for a slow reader
