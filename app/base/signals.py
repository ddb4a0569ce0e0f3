"""Events within a process: one emits, any number of subscribers hear."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVarTuple

Ts = TypeVarTuple("Ts")

log = logging.getLogger(__name__)


class Signal(Generic[*Ts]):
    """Calls its subscribers in order before `emit` returns. An error of one is logged, and the others are called all
    the same."""

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[[*Ts], object], ...] = ()

    def subscribe(self, subscriber: Callable[[*Ts], object]) -> Callable[[], None]:
        """Call it for each event. Returns a function that ends that."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def emit(self, *values: *Ts) -> None:
        """Call all subscribers."""
        for subscriber in self._subscribers:
            try:
                subscriber(*values)
            except Exception:
                log.exception("a subscriber failed")
