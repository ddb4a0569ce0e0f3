"""Events within a process, with one sender and any number of subscribers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVarTuple

Ts = TypeVarTuple("Ts")

log = logging.getLogger(__name__)


class Signal(Generic[*Ts]):
    """An event. `emit` calls all subscribers in order before it returns. It logs their exceptions and continues."""

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[[*Ts], object], ...] = ()

    def subscribe(self, subscriber: Callable[[*Ts], object]) -> Callable[[], None]:
        """Call `subscriber` for each event. Returns a function that unsubscribes it."""
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
