"""The objects that all routes of an application share."""

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
    """Created when the application starts."""

    settings: Settings
    access: Access
    quota: Quota
    pools: Pools
    policies: Policies
    engine: Engine
    names: Names
    record_of: Callable[[bytes], Batch]  # parses a record of v0's append
    origins: frozenset[str] = frozenset()  # may read answers of public topics and users' events
    started: float = msgspec.field(default_factory=time.monotonic)

    def core(self, kind: type[T]) -> T:
        return self.engine.core(kind)


def context_of(request: HTTPConnection) -> Context:
    """The context that the application's lifespan yielded."""
    context: Context = request.scope["state"]["context"]
    return context
