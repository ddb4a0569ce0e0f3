"""A feature, declared once: all that the application, its pages and the tests need to know of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.routing import BaseRoute

from app.base.pace import Pace

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.base.loops import Loop
    from app.http.route import Route
    from app.kernel.engine import Core, Engine
    from app.kernel.model import Connection
    from app.pages.frame import Page


EASE: Final = 4.0  # of most sweeps: each takes a fifth of one connection's time
BATCH: Final = 1_000


class Sweep(msgspec.Struct, frozen=True):
    """Background work in bounded batches. It runs by time, on demand, and by `./run reap`.

    run: tells its pace of each batch, and returns how much it moved.
    every: how often it runs by itself, in seconds; None for never.
    ease: it rests between two batches for this many times as long as a batch takes.
    moves: what it does, in words: "deletes …".
    """

    name: str
    run: Callable[[Pools, Engine, Pace], Awaitable[int]]
    every: float | None
    ease: float = 0.0
    moves: str = ""


def drains(*moves: Callable[[Connection, int], Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    """What a sweep runs that moves rows by statements alone: each in batches, until one is not full."""

    async def run(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
        pace = pace or Pace()
        for move in moves:
            await pace.drain(partial(move, pools.rest, BATCH), BATCH)
        return pace.moved

    return run


class Feature(msgspec.Struct, frozen=True):
    """`cores`: what the feature does on one process's engine, made at the start; its routes and pages find it with
    `context.core`. `sockets`: its WebSockets. `loops`: what runs beside the service. `sweeps`: what its reapers run."""

    name: str
    cores: Sequence[type[Core]] = ()
    routes: Sequence[Route] = ()
    sockets: Sequence[BaseRoute] = ()
    pages: Sequence[Page] = ()
    loops: Callable[[Engine], Sequence[Loop]] = lambda _engine: ()
    sweeps: Sequence[Sweep] = ()

    def mount(self) -> list[BaseRoute]:
        """Its routes as the application has them."""
        return [*(route.mount(self.name) for route in self.routes), *self.sockets]
