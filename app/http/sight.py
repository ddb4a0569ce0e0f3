"""Who sees what is in jobs: their payloads, metadata and results. For whichever edge somebody looks by; ADR 0028.

Whatever an edge shows of it goes through `as_seen`: what is hidden is taken out there, so that nothing that comes after
can show it by mistake.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from app.base.keys import Key
from app.errors import Forbidden
from app.kernel.jobs import Match
from app.kernel.model import Hideable

WHY: Final = "Payloads are hidden from this key or user."


T = TypeVar("T", bound=Hideable)


def sees_payloads(key: Key | None, topic: str) -> bool:
    """Whether whoever showed this key may see what is in the jobs of a topic."""
    return key is None or key.sees_payloads(topic)


def must_see_payloads(key: Key | None, topic: str) -> None:
    """Refuse what would be of no use without payloads, or would tell of them: records, a filter. Raises Forbidden."""
    if not sees_payloads(key, topic):
        raise Forbidden(WHY, {"topic": topic})


def must_see_what_it_asks(key: Key | None, topic: str, match: Match) -> None:
    """Refuse a filter by what is in payloads to who may not see that: what it finds would tell. Raises Forbidden."""
    if match.data:
        must_see_payloads(key, topic)


def as_seen(key: Key | None, topic: str, what: T) -> T:
    """What is of this topic, as whoever showed this key may see it: as it is, or `hidden`, without what is in it."""
    if sees_payloads(key, topic):
        return what
    return replace(what, hidden=True, **what.SECRET)
