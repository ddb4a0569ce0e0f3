"""A job's state by the clock: each address that tells it says the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from app.features.upkeep import sweeps
from tests.api.dialect import Topic, accepted, eventually, refused
from tests.conftest import Running

STATUS = {"leased": "processing", "failed": "failed", "expired": "expired", "cancelled": "expired"}
ENDS = {"failed", "expired", "cancelled"}


async def ready(queue: Topic) -> int:
    return (await queue.add(1))[0]


async def ended_lease(queue: Topic) -> int:
    [seq] = await queue.add(1)
    await queue.take(lease_ms=100)
    return seq


async def scheduled(queue: Topic) -> int:
    return (await queue.add(1, delay_ms=600_000))[0]


async def blocked(queue: Topic) -> int:
    return (await queue.add(2, group="g"))[1]


async def leased(queue: Topic) -> int:
    [seq] = await queue.add(1)
    await queue.take(lease_ms=600_000)
    return seq


async def marked(queue: Topic) -> int:
    seq = await leased(queue)
    await queue.post("cancel", seqs=[seq])
    return seq


async def failed(queue: Topic) -> int:
    seq = await leased(queue)
    await queue.fail("n", [seq])
    return seq


async def expired(queue: Topic) -> int:
    return (await queue.add(1, ttl_ms=1))[0]


async def outlived_lease(queue: Topic) -> int:
    [seq] = await queue.add(1, ttl_ms=1_500)
    await queue.take(lease_ms=1_600)
    return seq


async def cancelled(queue: Topic) -> int:
    seq = await marked(queue)
    await queue.extend("n", [seq], 100)
    return seq


CAUSES: list[tuple[Callable[[Topic], Awaitable[int]], str]] = [
    (ready, "ready"),
    (ended_lease, "ready"),
    (scheduled, "scheduled"),
    (blocked, "blocked"),
    (leased, "leased"),
    (marked, "leased"),
    (failed, "failed"),
    (expired, "expired"),
    (outlived_lease, "expired"),
    (cancelled, "cancelled"),
]


async def answer(queue: Topic, seq: int, verb: str = "") -> str:
    state: str = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}{verb}"))["state"]
    return state


@pytest.mark.parametrize(("cause", "state"), CAUSES, ids=[cause.__name__ for cause, _ in CAUSES])
async def test_every_address_says_the_same(
    service: Running, queue: Topic, cause: Callable[[Topic], Awaitable[int]], state: str
) -> None:
    seq = await cause(queue)

    async def so() -> bool:
        return await answer(queue, seq) == state

    await eventually(so)
    assert await answer(queue, seq, "/explain") == state
    assert await answer(queue, seq, "/result") == (state if state in ENDS else "pending")
    for other in ("ready", "scheduled", "blocked", "leased", *ENDS):
        page = accepted(await queue.http.get(f"{queue.path}/jobs", params={"state": other}))
        assert (seq in [job["seq"] for job in page["jobs"]]) == (other == state), other
    for status in ("pending", "processing", "failed", "expired"):
        answered = await queue.http.get("/api/messages", params={"topic": queue.name, "status": status})
        found = [one for one in answered.json()["items"] if one["id"].endswith(f"{seq:012x}")]
        assert bool(found) == (status == STATUS.get(state, "pending")), status
        for one in found:
            assert one["status"] == status
            assert one.get("cancelled") == (True if cause in {marked, cancelled} else None)
    changed = await queue.http.patch(f"{queue.path}/jobs/{seq}", json={"tag": "t"})
    if state in {*ENDS, "leased"}:
        assert refused(changed, 409, "not_pending")["detail"]["status"] == state
    else:
        assert accepted(changed)["tag"] == "t"
    if state == "cancelled":

        async def swept() -> bool:
            await sweeps.expiry(service.context.pools, service.context.engine)
            return await answer(queue, seq, "/explain") == "gone"

        await eventually(swept)
        assert await answer(queue, seq, "/result") == "cancelled"
