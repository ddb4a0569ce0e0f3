"""What every feature's core has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.engine.engine import Engine


class Core:
    """What a feature does on one engine: made where `engine.core` first asks for it, stopped and drained with it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shared = engine.shared

    def stop(self) -> None:
        """The service is stopping: send away who waits, and begin nothing more."""

    async def drain(self) -> None:
        """Wait for what is under way."""
