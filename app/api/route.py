"""A route, declared once: the check of who calls, the reading of the body, the count of the call, its description and
the tests' table of who may do what come from the declaration."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import openapi
from app.api.body import read_json
from app.api.direct import Direct
from app.edge.context import Context, context_of
from app.keys import Key, Scope

Given = msgspec.Struct | tuple[int, msgspec.Struct] | None  # with another status than the first; None: no body

_ANY: Final = frozenset({400, 401, 403, 503})
_OF_BODIES: Final = frozenset({413, 415})


class Call(msgspec.Struct, frozen=True):
    """A request whose key may do what its route does. `key` is None where everything is open."""

    request: Request
    context: Context
    key: Key | None


class Dialect(msgspec.Struct, frozen=True):
    """How one dialect writes. `error`: the shape of its errors. `gives`: what an answer looks like once it is written.
    `nul`: bodies may have U+0000, and the route sees to where."""

    name: str
    error: type[msgspec.Struct]
    write: Callable[[msgspec.Struct, int, float], Response]  # an answer, its status, and when the call began
    gives: Callable[[type[msgspec.Struct]], type[msgspec.Struct]]
    nul: bool = False


class _What(msgspec.Struct, frozen=True):
    method: str
    path: str
    do: Callable[..., Awaitable[Given]]
    gives: Mapping[int, type[msgspec.Struct] | None]


class Route(_What, frozen=True, kw_only=True):
    """`do` gets the call, and the body where the route `takes` one; its docstring is the route's description.

    gives: answers by status, the usual one first. scope: what the caller's key must have. refuses: with what, beside
    what any call may meet: 404 where the path names something, 413 and 415 where there is a body. parameters: of the
    path and the query, as OpenAPI has them.
    """

    dialect: Dialect
    scope: Scope
    takes: type[msgspec.Struct] | None = None
    parameters: Sequence[dict[str, Any]] = ()
    refuses: frozenset[int] = frozenset()

    def mounted(self, feature: str) -> Direct:
        """The route as the application has it, named and counted as its feature's."""
        usual = next(iter(self.gives))
        return Direct(
            self.path,
            self._endpoint(feature, usual),
            methods=[self.method],
            tags=[feature if self.dialect.name == "v0" else self.dialect.name],
            status_code=usual,
            response_class=Response,
            openapi_extra=openapi.operation(
                parameters=self.parameters,
                body=self.takes or (),
                answers={
                    status: None if answer is None else self.dialect.gives(answer)
                    for status, answer in self.gives.items()
                },
                errors=sorted(self._refusals()),
                error=self.dialect.error,
            ),
        )

    def _refusals(self) -> frozenset[int]:
        named = frozenset({404}) if "{" in self.path else frozenset()
        return _ANY | self.refuses | named | (_OF_BODIES if self.takes else frozenset())

    def _endpoint(self, feature: str, usual: int) -> Callable[[Request], Awaitable[Response]]:
        decoder = None if self.takes is None else msgspec.json.Decoder(self.takes)

        async def endpoint(request: Request) -> Response:
            began, context = time.perf_counter(), context_of(request)
            call = Call(request, context, context.access.check(request, self.scope))
            if decoder is None:
                given = await self.do(call)
            else:
                most = context.settings.max_body_bytes
                given = await self.do(call, await read_json(request, decoder, most, nul=self.dialect.nul))
            if given is None:
                return Response(status_code=usual)
            status, answer = given if isinstance(given, tuple) else (usual, given)
            return self.dialect.write(answer, status, began)

        # Not functools.wraps: FastAPI would look for parameters of what is wrapped.
        endpoint.__name__, endpoint.__doc__ = self.do.__name__, self.do.__doc__
        endpoint.counted_as = self.dialect.name, f"{feature}_{self.do.__name__}"  # type: ignore[attr-defined]
        return endpoint
