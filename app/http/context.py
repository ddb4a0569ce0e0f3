"""What the routes of an application share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.requests import HTTPConnection

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.http.access import Access
    from app.http.quota import Quota
    from app.kernel.engine import Core, Engine
    from app.kernel.model import Batch
    from app.kernel.topics.cache import Names, Policies
    from app.settings import Settings

T = TypeVar("T", bound="Core")


class Context(msgspec.Struct):
    """Made by create_app, complete once the application has started."""

    settings: Settings
    access: Access
    quota: Quota
    pools: Pools
    policies: Policies
    engine: Engine
    names: Names
    record_of: Callable[[bytes], Batch]  # a record in JSON, as an append of v0 takes it; raises what that is answered
    origins: frozenset[str] = frozenset()  # whose pages may read what public topics and users' events answer
    started: float = msgspec.field(default_factory=time.monotonic)

    def core(self, kind: type[T]) -> T:
        """What a feature does here."""
        return self.engine.core(kind)


def context_of(request: HTTPConnection) -> Context:
    """The context of the application that this request came to: what its lifespan yielded."""
    context: Context = request.scope["state"]["context"]
    return context
