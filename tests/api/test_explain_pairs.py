"""Why is it not running? Each reason alone and with each other one that a job can have, by its causes: what must be
mended first comes first."""

from __future__ import annotations

import itertools

import pytest

from app.features.explain import reasons
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import Services
from tests.conftest import Running

# In the order of what must be mended first.
ORDER = ["paused", "blocked", "exhausted", "scheduled", "no_claimer", "tenant_limit", "throughput_limit", "behind"]
# What is not asked of one that can't be claimed whatever there is.
OF_CLAIMS = set(ORDER[4:])
APART = [
    {"blocked", "exhausted"},  # what is blocked was never handed out, or not since its requeue
    {"no_claimer", "throughput_limit"},  # somebody took the tokens
    *({one, other} for one in ("blocked", "exhausted") for other in OF_CLAIMS),
]
PAIRS = [pair for pair in itertools.combinations(ORDER, 2) if set(pair) not in APART]
UNTOLD = {"paused", "blocked", "exhausted", "no_claimer", "tenant_limit"}


@pytest.fixture(scope="module")
async def service(services: Services) -> Running:
    """On a database of its own: a look at the ledger that all tests fill may take longer than it may."""
    return await services.start()


async def make(queue: Topic, wanted: set[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """A job that has these reasons not to run."""
    await queue.put(
        tenant_limits={"acme": 1} if "tenant_limit" in wanted else {},
        throughput_limit=1 if "throughput_limit" in wanted else 0,
    )
    fields: Body = {"tenant": "acme"}
    if "blocked" in wanted:
        fields["group"] = "g"
        await queue.add(1, **fields)
    if "scheduled" in wanted and "exhausted" not in wanted:
        fields["delay_ms"] = 60_000
    if "tenant_limit" in wanted:
        await queue.add(1, tenant="acme")
        await queue.take(tenants=["acme"])
    [seq] = await queue.add(1, **fields)
    if "exhausted" in wanted:
        await queue.take(lease_ms=100 if "scheduled" not in wanted else 60_000)
        if "scheduled" in wanted:
            await queue.nack("n", [seq], delay_ms=60_000)
        else:
            await queue.until_counts(1, 0)
        await queue.put(max_deliveries=1, on_exhausted="fail")  # which it has had
    if "behind" in wanted:
        await queue.add(1, tenant="acme", priority=9)
    if "no_claimer" in wanted:
        monkeypatch.setattr(reasons, "IDLE_MS", 0)  # whoever has claimed did so too long ago
    elif "tenant_limit" not in wanted:
        await queue.add(1, tenant="other")
        await queue.ack("n", [(await queue.take(tenants=["other"]))["$seq"]])
    if "paused" in wanted:
        accepted(await queue.http.post(f"{queue.path}/pause"))
    return seq


async def told(queue: Topic, seq: int) -> Body:
    return accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/explain"))


@pytest.mark.parametrize("wanted", [(), *((one,) for one in ORDER), *PAIRS], ids="+".join)
async def test_each_alone_and_in_pairs(queue: Topic, wanted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for trial in range(3 if "throughput_limit" in wanted else 1):  # a token comes back in a second
        queue = Topic(queue.http, f"{queue.name}-{trial}")
        seq = await make(queue, {*wanted}, monkeypatch)
        answer = await told(queue, seq)
        if [reason["code"] for reason in answer["reasons"]] == list(wanted):
            break
    assert [reason["code"] for reason in answer["reasons"]] == list(wanted or ("next",))
    assert (answer["wait_ms"] is None) == bool(UNTOLD & {*wanted}), "null where nobody can tell"
    if "behind" in wanted:
        turn = answer["reasons"][-1]["detail"]
        assert turn["ahead"] == 1
        assert turn["wait_ms"] == answer["wait_ms"] or "scheduled" in wanted
