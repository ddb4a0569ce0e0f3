"""Days of results go once nobody is shown anything of them, and no sooner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.base.db.pool import Pools
from app.features.upkeep import sweeps
from app.kernel.settle import results
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, held, put, take, until
from tests.reapers.days import days_ago
from tests.reapers.test_partitions import days

Make = Callable[..., Awaitable[Policy]]


async def _hand_in(machine: Machine, policy: Policy, result: str) -> int:
    await put(machine.pools.rest, policy, batch())
    [job] = await take(machine.pools.rest, policy)
    assert await machine.engine.settlements.ack(policy, [held(job)], [result]) == {0}
    return job.seq


async def test_a_day_goes_with_its_longest(own: Pools, machine: Machine, make: Make) -> None:
    brief, long = await make("b", result_ttl_ms=200), await make("l", result_ttl_ms=2_000)
    seqs = [await _hand_in(machine, policy, "1") for policy in (brief, long)]
    await days_ago(own, 3, "results", "completed_at")

    async def hidden(policy: Policy, seq: int) -> bool:
        found = await results.find(machine.pools.rest, policy.topic, seq)
        return found is None or not found.kept

    await until(lambda: hidden(brief, seqs[0]), "the brief one is hidden")
    found = await results.find(machine.pools.rest, long.topic, seqs[1])
    if found is not None and found.kept:  # a slow machine may be past it
        await sweeps.retention(machine.pools, machine.engine)
        assert -3 in await days(own, "results"), "the other is still shown"
    await until(lambda: hidden(long, seqs[1]), "both are hidden")
    assert -3 in await days(own, "results"), "hidden before it is dropped"
    await sweeps.retention(machine.pools, machine.engine)
    assert -3 not in await days(own, "results")
    assert 0 in await days(own, "results"), "of the last days none goes"

    ever = await make("e", result_ttl_ms=0)
    seq = await _hand_in(machine, ever, '"for ever"')
    await days_ago(own, 3, "results", "completed_at")
    await sweeps.retention(machine.pools, machine.engine)
    found = await results.find(machine.pools.rest, ever.topic, seq)
    assert found is not None
    assert found.result == '"for ever"'
    await store.delete(machine.pools.rest, "e", if_empty=False)
    await sweeps.retention(machine.pools, machine.engine)
    assert -3 not in await days(own, "results"), "nobody can ask for it any more"
