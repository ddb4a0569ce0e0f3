"""A feature, declared once: all that the application, its pages and the tests need to know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from fastapi import APIRouter
from starlette.routing import BaseRoute

if TYPE_CHECKING:
    from app.base.loops import Loop
    from app.http.route import Route
    from app.kernel.engine import Core, Engine
    from app.pages.frame import Page


class Feature(msgspec.Struct, frozen=True):
    """`cores`: what the feature does on one process's engine, made at the start; its routes and pages find it with
    `context.core`. `sockets`: its WebSockets. `loops`: what runs beside the service."""

    name: str
    cores: Sequence[type[Core]] = ()
    routes: Sequence[Route] = ()
    routers: Sequence[APIRouter] = ()  # of routes that are not declared yet
    sockets: Sequence[BaseRoute] = ()
    pages: Sequence[Page] = ()
    loops: Callable[[Engine], Sequence[Loop]] = lambda _engine: ()

    def mounted(self) -> list[BaseRoute]:
        """Its routes as the application has them."""
        undeclared = [route for router in self.routers for route in router.routes]
        return [*undeclared, *(route.mounted(self.name) for route in self.routes), *self.sockets]
