"""A feature, declared once: all that the application, its pages and the tests need to know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from app.admin.frame import Page
    from app.api.route import Route
    from app.base.loops import Loop
    from app.engine.engine import Engine


class Feature(msgspec.Struct, frozen=True):
    """`core` makes what the feature does on one process's engine; its routes and pages find it by its type, with
    `context.core`. `loops` makes what that core does in the background."""

    name: str
    core: Callable[[Engine], Any]
    routes: Sequence[Route] = ()
    pages: Sequence[Page] = ()
    loops: Callable[[Any], Sequence[Loop]] = lambda _core: ()
