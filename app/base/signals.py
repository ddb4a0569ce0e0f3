"""Word of something that has happened, to whoever wants to hear it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVarTuple

Ts = TypeVarTuple("Ts")

log = logging.getLogger(__name__)


class Signal(Generic[*Ts]):
    """Calls its subscribers, in the order in which they came, before `emit` returns. One that raises is logged, and
    keeps nothing from the others."""

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[[*Ts], object], ...] = ()

    def subscribe(self, subscriber: Callable[[*Ts], object]) -> Callable[[], None]:
        """Call it from now on, until what is returned here is called."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def emit(self, *values: *Ts) -> None:
        """It has happened."""
        for subscriber in self._subscribers:
            try:
                subscriber(*values)
            except Exception:
                log.exception("a subscriber failed")
