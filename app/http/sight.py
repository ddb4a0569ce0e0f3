"""Which jobs a key may see: only one tenant's (docs/keys.md), with or without payloads (ADR 0028).

Every job that an edge shows goes through `as_seen`, which removes hidden payloads, metadata and results. Later code
can't show them by mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from app.base.keys import Key
from app.errors import Forbidden
from app.kernel.jobs import JobMatch
from app.kernel.model import Hideable
from app.kernel.tenants import tenants
from app.kernel.tenants.census import Census

if TYPE_CHECKING:
    from app.http.context import Context
    from app.kernel.model import Batch, Topic
    from app.kernel.topics.policy import Policy

WHY: Final = "Payloads are hidden from this key or user."


T = TypeVar("T", bound=Hideable)


def sees_payloads(key: Key | None, topic: str) -> bool:
    """Whether the key may see payloads of a topic's jobs."""
    return key is None or key.sees_payloads(topic)


def must_see_payloads(key: Key | None, topic: str) -> None:
    """Check access to payloads, for calls that need or reveal them. Raises Forbidden."""
    if not sees_payloads(key, topic):
        raise Forbidden(WHY, {"topic": topic})


def must_see_what_it_asks(key: Key | None, topic: str, match: JobMatch) -> None:
    """Check that a key may filter by payloads: the result would reveal them. Raises Forbidden."""
    if match.data:
        must_see_payloads(key, topic)


def as_seen(key: Key | None, topic: str, what: T) -> T:
    """`what`, without its secret fields and marked `hidden` if the key may not see payloads of its topic."""
    if sees_payloads(key, topic):
        return what
    return replace(what, hidden=True, **what.SECRET)


def tenants_for(key: Key | None, named: Collection[str] | None) -> frozenset[str] | None:
    """The tenants whose jobs a claim with this key may take; None for all. Raises Forbidden if `named` has another
    tenant."""
    if key is not None and key.tenant is not None:
        _must_be(key.tenant, named or ())
        return frozenset((key.tenant,))
    return None if named is None else frozenset(named)


def keep_to_tenant(key: Key | None, batch: Batch) -> None:
    """Assign a batch to the key's tenant. Raises Forbidden if a record names another tenant."""
    if key is not None and key.tenant is not None:
        _must_be(key.tenant, [tenant for tenant in batch.tenants if tenant is not None])
        batch.tenants = [key.tenant] * len(batch)


def batch_key(key: Key | None, given: str | None) -> str | None:
    """The idempotency key of a batch, made distinct for each tenant."""
    if key is None or key.tenant is None or given is None:
        return given
    return f"{key.tenant}\x1f{given}"


async def own_places(context: Context, key: Key | None, topic: Topic, seqs: Sequence[int]) -> list[int] | None:
    """The indexes in `seqs` of jobs that a key may see; None for all of them."""
    if key is None or key.tenant is None:
        return None
    found = await tenants.of_tenant(context.pools.rest, topic, key.tenant, seqs)
    return [place for place, seq in enumerate(seqs) if seq in found]


async def count_jobs(context: Context, key: Key | None, policy: Policy) -> tuple[int, int]:
    """Count the ready and in-flight jobs that a key may see. Raises Unavailable."""
    if key is None or key.tenant is None:
        found = await context.engine.counters.read(policy)
        return found.ready, found.in_flight
    stats = await context.core(Census).read(policy, only=key.tenant)
    return (stats[0].ready, stats[0].in_flight) if stats else (0, 0)


def _must_be(tenant: str, named: Collection[str]) -> None:
    for name in named:
        if name != tenant:
            raise Forbidden("This key is for the jobs of another tenant.", {"tenant": name})
