"""docs/operations/processes.md says what docs/benchmarks/cost.json says, and the measurement can be taken."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from app.base.db.pool import open_pools
from tools.bench import cost
from tools.bench.facts import ROOT


def test_the_page_has_the_figures() -> None:
    page = (ROOT / "docs/operations/processes.md").read_text()
    told = json.loads((ROOT / "docs/benchmarks/cost.json").read_text())
    assert cost.table(told) in page


async def test_a_larger_payload_costs_more(new_database: Callable[[], Awaitable[str]]) -> None:
    pools = await open_pools(await new_database(), hot=2, rest=2, prepared_statements=True)
    try:
        small, large = [await cost.measure(pools, size, 300, 100) for size in (100, 10_000)]
    finally:
        await pools.close(5)
    assert large.enqueue - small.enqueue > 9_000
    assert 0 < large.ack < 10_000
    assert large.waiting > small.waiting > 0
