"""Who claims."""

from __future__ import annotations

from typing import Final

import msgspec

from app.kernel.topics.policy import Policy

MAX_CLAIM: Final = 1_000


class Claimer(msgspec.Struct, frozen=True):
    """Who claims from which queue, how many at most (1 to MAX_CLAIM), and for how long (ms, clamped already); of which
    tenants, if not of all."""

    policy: Policy
    node: str
    max: int
    lease_ms: int
    whole: bool = False  # with what only the messages dialect shows
    tenants: frozenset[str] | None = None
    tags: frozenset[str] | None = None  # only jobs with one of these
