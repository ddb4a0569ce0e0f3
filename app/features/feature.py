"""The declaration of a feature, for the application, its pages and the tests."""

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


EASE: Final = 4.0  # for most sweeps: each takes a fifth of one connection's time
BATCH: Final = 1_000


class Sweep(msgspec.Struct, frozen=True):
    """Background work in bounded batches. It runs by time, on demand, and by `./run reap`.

    run: reports each batch to its pace, and returns how many rows it moved.
    every: its interval in seconds, None for never.
    ease: the pause between two batches, as a multiple of a batch's time.
    moves: a description of its work: "deletes …".
    """

    name: str
    run: Callable[[Pools, Engine, Pace], Awaitable[int]]
    every: float | None
    ease: float = 0.0
    moves: str = ""


def drains(*moves: Callable[[Connection, int], Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    """The `run` of a sweep that executes these statements, each in batches until a batch is not full."""

    async def run(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
        pace = pace or Pace()
        for move in moves:
            await pace.drain(partial(move, pools.rest, BATCH), BATCH)
        return pace.moved

    return run


class Feature(msgspec.Struct, frozen=True):
    """A feature.

    `cores`: its classes on a process's engine, created at the start; routes and pages get them by `context.core`.
    `sockets`: its WebSocket routes. `loops`: its background loops. `sweeps`: the work of its reapers.
    """

    name: str
    cores: Sequence[type[Core]] = ()
    routes: Sequence[Route] = ()
    sockets: Sequence[BaseRoute] = ()
    pages: Sequence[Page] = ()
    loops: Callable[[Engine], Sequence[Loop]] = lambda _engine: ()
    sweeps: Sequence[Sweep] = ()

    def mount(self) -> list[BaseRoute]:
        """The feature's routes and WebSockets for the application."""
        return [*(route.mount(self.name) for route in self.routes), *self.sockets]
