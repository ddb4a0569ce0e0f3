"""Keeps keys that are for one tenant to that tenant's jobs. docs/keys.md."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from app.errors import Forbidden
from app.kernel.tenants import tenants
from app.kernel.tenants.census import Census

if TYPE_CHECKING:
    from app.base.keys import Key
    from app.http.context import Context
    from app.kernel.model import Batch, Topic
    from app.kernel.topics.policy import Policy


def claimed_by(key: Key | None, named: Collection[str] | None) -> frozenset[str] | None:
    """Which tenants' jobs a claim with this key is for; None: all. Raises Forbidden where it names another one."""
    if key is not None and key.tenant is not None:
        _must_be(key.tenant, named or ())
        return frozenset((key.tenant,))
    return None if named is None else frozenset(named)


def enqueued_by(key: Key | None, batch: Batch) -> None:
    """Let the records of a batch be the key's tenant's. Raises Forbidden where one names another."""
    if key is not None and key.tenant is not None:
        _must_be(key.tenant, [tenant for tenant in batch.tenants if tenant is not None])
        batch.tenants = [key.tenant] * len(batch)


def batch_key(key: Key | None, given: str | None) -> str | None:
    """The idempotency key of a batch: one tenant's are not another's."""
    if key is None or key.tenant is None or given is None:
        return given
    return f"{key.tenant}\x1f{given}"


async def own(context: Context, key: Key | None, topic: Topic, seqs: Sequence[int]) -> list[int] | None:
    """The places in `seqs` that a key may know of; None: all of them."""
    if key is None or key.tenant is None:
        return None
    found = await tenants.of_tenant(context.pools.rest, topic, key.tenant, seqs)
    return [place for place, seq in enumerate(seqs) if seq in found]


async def counts(context: Context, key: Key | None, policy: Policy) -> tuple[int, int]:
    """How many jobs are ready and in flight, of those that a key may know of. Raises Unavailable."""
    if key is None or key.tenant is None:
        found = await context.engine.counters.read(policy)
        return found.ready, found.in_flight
    stats = await context.core(Census).read(policy, only=key.tenant)
    return (stats[0].ready, stats[0].in_flight) if stats else (0, 0)


def _must_be(tenant: str, named: Collection[str]) -> None:
    for name in named:
        if name != tenant:
            raise Forbidden("This key is for the jobs of another tenant.", {"tenant": name})
