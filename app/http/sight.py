"""What whoever shows a key may know of jobs: one tenant's alone (docs/keys.md), and what is in them (ADR 0028).

Whatever an edge shows of a job goes through `as_seen`: payload, metadata and result that are hidden are taken out
there, so that nothing that comes after can show them by mistake.
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
    """Whether whoever showed this key may see what is in the jobs of a topic."""
    return key is None or key.sees_payloads(topic)


def must_see_payloads(key: Key | None, topic: str) -> None:
    """Refuse what would be of no use without payloads, or would tell of them: records, a filter. Raises Forbidden."""
    if not sees_payloads(key, topic):
        raise Forbidden(WHY, {"topic": topic})


def must_see_what_it_asks(key: Key | None, topic: str, match: JobMatch) -> None:
    """Refuse a filter by what is in payloads to who may not see that: what it finds would tell. Raises Forbidden."""
    if match.data:
        must_see_payloads(key, topic)


def as_seen(key: Key | None, topic: str, what: T) -> T:
    """What is of this topic, as whoever showed this key may see it: as it is, or `hidden`, without what is in it."""
    if sees_payloads(key, topic):
        return what
    return replace(what, hidden=True, **what.SECRET)


def tenants_for(key: Key | None, named: Collection[str] | None) -> frozenset[str] | None:
    """Which tenants' jobs a claim with this key is for; None: all. Raises Forbidden where it names another one."""
    if key is not None and key.tenant is not None:
        _must_be(key.tenant, named or ())
        return frozenset((key.tenant,))
    return None if named is None else frozenset(named)


def keep_to_tenant(key: Key | None, batch: Batch) -> None:
    """Let the records of a batch be the key's tenant's. Raises Forbidden where one names another."""
    if key is not None and key.tenant is not None:
        _must_be(key.tenant, [tenant for tenant in batch.tenants if tenant is not None])
        batch.tenants = [key.tenant] * len(batch)


def batch_key(key: Key | None, given: str | None) -> str | None:
    """The idempotency key of a batch: one tenant's are not another's."""
    if key is None or key.tenant is None or given is None:
        return given
    return f"{key.tenant}\x1f{given}"


async def own_places(context: Context, key: Key | None, topic: Topic, seqs: Sequence[int]) -> list[int] | None:
    """The places in `seqs` that a key may know of; None: all of them."""
    if key is None or key.tenant is None:
        return None
    found = await tenants.of_tenant(context.pools.rest, topic, key.tenant, seqs)
    return [place for place, seq in enumerate(seqs) if seq in found]


async def count_jobs(context: Context, key: Key | None, policy: Policy) -> tuple[int, int]:
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
