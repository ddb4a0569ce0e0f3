"""How an operator holds a queue up. docs/control.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from app.errors import InvalidRequest

MOST_TENANTS: Final = 1_000  # that are paused at once


class Control(msgspec.Struct, frozen=True):
    """How an operator holds a queue up: nothing of it is claimed, or nothing of some tenants; or no more is taken in.
    It is no configuration: replacing that leaves it."""

    paused: bool = False
    paused_tenants: tuple[str, ...] = ()  # ascending
    draining: bool = False


FREE: Final = Control()


def paused(tenant: str | None) -> Callable[[Control], Control]:
    """Hands out no more jobs, of the topic or of a tenant. Raises InvalidRequest."""

    def change(before: Control) -> Control:
        if tenant is None:
            return msgspec.structs.replace(before, paused=True)
        tenants = tuple(sorted({*before.paused_tenants, tenant}))
        if len(tenants) > MOST_TENANTS:
            raise InvalidRequest(f"At most {MOST_TENANTS} tenants can be paused one by one: pause the topic.")
        return msgspec.structs.replace(before, paused_tenants=tenants)

    return change


def resumed(tenant: str | None) -> Callable[[Control], Control]:
    """Is over with all of that, or with a tenant's pause."""

    def change(before: Control) -> Control:
        if tenant is None:
            return FREE
        return msgspec.structs.replace(
            before, paused_tenants=tuple(one for one in before.paused_tenants if one != tenant)
        )

    return change


def drained(before: Control) -> Control:
    """Takes in no more."""
    return msgspec.structs.replace(before, draining=True)
