"""How an operator holds a queue up. docs/control.md."""

from __future__ import annotations

from typing import Final

import msgspec


class Control(msgspec.Struct, frozen=True):
    """How an operator holds a queue up: nothing of it is claimed, or nothing of some tenants; or no more is taken in.
    It is no configuration: replacing that leaves it."""

    paused: bool = False
    paused_tenants: tuple[str, ...] = ()  # ascending
    draining: bool = False


FREE: Final = Control()
