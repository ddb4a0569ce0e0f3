"""An engine of a process of its own."""

from __future__ import annotations

from tests.engine.conftest import machine, start

__all__ = ["machine", "start"]
