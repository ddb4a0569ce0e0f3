"""An engine of a process of its own, and queues for it."""

from __future__ import annotations

from tests.engine.conftest import machine, make, start

__all__ = ["machine", "make", "start"]
