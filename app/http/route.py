"""Declarations of routes. The access check, the reading of the body, the metrics, the OpenAPI description and the
tests' table of permissions all come from one declaration."""

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

LARGE_BYTES = 64 * 1024  # larger answers count towards the quota until they are sent

# An answer; with a status other than the route's first; a complete response; or None for no body.
Given = msgspec.Struct | tuple[int, msgspec.Struct] | Response | None

_ANY: Final = frozenset({400, 401, 403, 503})
_OF_BODIES: Final = frozenset({413, 415})


class Call(msgspec.Struct, frozen=True):
    """An authorized request. `key` is None on an open server. `topic` is the topic in the path, or "". `began` is when
    it arrived, by time.perf_counter."""

    request: Request
    context: Context
    key: Key | None
    topic: str = ""
    began: float = 0.0

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Prefixes of the topics that a list may show; empty for all topics."""
        return () if self.key is None else self.key.prefixes

    async def queue(self) -> Policy:
        """The queue in the path. Raises TopicNotFound, NotAQueue."""
        return await self.context.policies.queue(check_name(self.topic))


class _What(msgspec.Struct, frozen=True):
    method: str
    path: str
    do: Callable[..., Awaitable[Given]]
    gives: Mapping[int, type[msgspec.Struct] | None]


class Route(_What, frozen=True, kw_only=True):
    """A route. `do` is called with the call, and with the body if the route `takes` one. Its docstring is the route's
    description.

    - gives: structs of answers by status, the usual one first.
    - refuses: additional error statuses. 404 is implied if the path names something (unless `finds` is false), 413 and
      415 if there is a body.
    - parameters: OpenAPI parameters of the query and the path, without {topic}.
    - empty: replaces an empty body; b"": the body is required. decoder: replaces msgspec's decoder.
    - described: merged into the OpenAPI description. in_openapi: whether there is one.
    - verb: the name in the metrics; by default the feature's and the function's name.
    - scope: the scope that a key needs, for the topic in the path if there is one; None: no key is needed.
    - server: the key must cover every topic.
    - consumes, confines, query_token: see Access.check.
    - own_check: `do` checks access and then the parameters itself. Its call has no key and no topic.
    - reloads: if the process knows no keys and users, it first asks the database. For routes that create them.
    - hot: `do` reads the body itself and returns a response, for speed (enqueue, claim, ack). It is counted by the
      function's name and may take several kinds of bodies.
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
    in_openapi: bool = True

    @property
    def needs(self) -> str:
        """The scopes that a key needs, in words."""
        if self.scope is None:
            return "none"
        return "+".join(self.scope.words) or ("token" if self.own_check else "any")

    def mount(self, feature: str) -> Direct:
        """Make the FastAPI route, named and counted as part of a feature."""
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
            include_in_schema=self.in_openapi,
        )

    def parameters_of(self, place: str) -> set[str]:
        """Names of the parameters in `place`: query or path."""
        return {one["name"] for one in self.parameters if one["in"] == place}

    def _refusals(self) -> frozenset[int]:
        named = frozenset({404}) if self.finds and "{" in self.path else frozenset()
        of_keys = frozenset() if self.scope is None else _ANY
        # A 400 is about an unknown parameter, a parameter's value, a name or a body.
        if not (self.dialect.strict or self.takes or "{topic}" in self.path or self.parameters_of("query")):
            of_keys -= {400}
        return of_keys | self.refuses | named | (_OF_BODIES if self.takes else frozenset())

    def _gate(self) -> Callable[[Request, float], Call]:
        """Make the function that checks access. Made once, because hot routes use it as well."""
        if self.own_check:
            return lambda request, began: Call(request, context_of(request), None, "", began)
        scope, server, consumes, confines = self.scope, self.server, self.consumes, self.confines
        query_token, named = self.query_token, "{topic}" in self.path
        # The path may continue after the topic's name, which ends at the first slash.
        topic_of = (lambda request: str(request.path_params["topic"])) if ":path}" in self.path else topic_in

        def admit(request: Request, began: float) -> Call:
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

        return admit

    def _endpoint(self, feature: str, usual: int) -> Callable[..., Any]:
        do, admit = self.do, self._gate()

        def hot(request: Request) -> Awaitable[Given]:
            return do(admit(request, time.perf_counter()))

        if self.hot:  # a coroutine around `do` would be one more for each call
            return self._with_count(hot, feature)
        decoder = self.decoder or (msgspec.json.Decoder(self.takes) if isinstance(self.takes, type) else None)
        names = self.parameters_of("query") if self.dialect.strict and not self.own_check else None

        async def endpoint(request: Request) -> Response:
            began = time.perf_counter()
            if self.reloads:
                await _reload_open(request)
            call = admit(request, began)
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
        # Not functools.wraps: FastAPI would inspect the parameters of the wrapped function.
        endpoint.__name__, endpoint.__doc__ = self.do.__name__, self.do.__doc__
        endpoint.counted_as = self.dialect.name, verb  # type: ignore[attr-defined]
        return endpoint


async def _reload_open(request: Request) -> None:
    """If the process knows no keys and users, ask the database for them."""
    directory = context_of(request).access.directory
    if not directory.guarded:
        await directory.reload()


class Direct(APIRoute):
    """A route whose function takes the request and returns a response.

    Skips FastAPI's dependencies, exit stacks and serialization, which take a third of the time of a single claim.
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
    """Send an answer whose bytes count towards the quota until the client has read them. Raises Throttled for a GET if
    the quota is used up; other methods have already made their change."""
    quota = context_of(request).quota
    if request.method == "GET":
        quota.must_have_room(0)
    quota.add_bytes(request.scope, len(response.body))
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})  # the server waits here for a slow reader
