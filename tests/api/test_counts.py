"""return_counts=false: the answers to workers' verbs without what the queue has left."""

from __future__ import annotations

import pytest

from tests.api.dialect import Topic, accepted
from tests.conftest import Running


@pytest.mark.parametrize("verb", ["ack", "nack", "fail"])
async def test_they_are_neither_told_nor_counted_on_demand(
    queue: Topic, service: Running, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    counters = service.context.engine.counters
    read, reads = counters.read, []

    async def noted(policy: object) -> object:
        reads.append(policy)
        return await read(policy)  # type: ignore[arg-type]

    monkeypatch.setattr(counters, "read", noted)
    await queue.add(6)
    for query, counted in (("?return_counts=false", False), ("?return_counts=true", True), ("", True)):
        reads.clear()
        claimed = accepted(await queue.http.post(f"{queue.path}/claim{query}", json={"node": "n"}))
        assert ("ready" in claimed) is counted
        body = {"node": "n", "seqs": [claimed["claimed"][0]["$seq"]]}
        settled = accepted(await queue.http.post(f"{queue.path}/{verb}{query}", json=body))
        assert settled["skipped"] == []
        assert {"ready", "in_flight"} & set(settled) == ({"ready", "in_flight"} if counted else set())
        assert len(reads) == (2 if counted else 0)
