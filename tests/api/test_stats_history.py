"""GET /v0/topics/:topic/stats/history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from tests.api import minutes
from tests.api.dialect import Topic, accepted, refused

Steps = Callable[..., Awaitable[list[dict[str, object]]]]


@pytest.fixture
def steps(pools: Pools, queue: Topic) -> Steps:
    """What is told once two minutes have gone by."""

    async def read(**query: object) -> list[dict[str, object]]:
        await minutes.tell(pools)
        found: list[dict[str, object]] = accepted(
            await queue.http.get(
                f"{queue.path}/stats/history", params={key: str(value) for key, value in query.items()}
            )
        )["steps"]
        return found

    return read


async def test_it_tells_what_happened(queue: Topic, steps: Steps) -> None:
    await queue.append(*({"data": n, "tenant": "ab"[n % 2]} for n in range(5)))
    claimed = (await queue.claim(max=5))["claimed"]
    await queue.ack("n", [job["$seq"] for job in claimed][:3])
    found = await steps(step=86_400)
    assert sum(int(str(one["enqueued"])) for one in found) == 5
    assert sum(int(str(one["completed"])) for one in found) == 3
    waits = [one["wait"] for one in found]
    assert sum(one["count"] for one in waits) == 5  # type: ignore[index]
    of_a = await steps(step=86_400, tenant="a")
    assert sum(int(str(one["enqueued"])) for one in of_a) == 3
    assert await steps(tenant="nobody") == []


async def test_it_tells_what_the_queue_held(queue: Topic, pools: Pools, steps: Steps) -> None:
    await queue.append({"data": 1}, {"data": 2, "delay_ms": 60_000}, {"data": 3, "tenant": "a"})
    await queue.claim(max=1)
    await minutes.look(pools)
    path = f"{queue.path}/stats/history"
    answer = accepted(await queue.http.get(path))
    assert answer["depths"][-1] == {
        "at": answer["depths"][-1]["at"],
        "ready": 1,
        "in_flight": 1,
        "scheduled": 1,
        "blocked": 0,
    }
    (hour,) = accepted(await queue.http.get(path, params={"step": 3_600}))["depths"][-1:]
    assert (hour["at"] % 3_600_000, hour["ready"]) == (0, 1)
    past = {"from": "2026-01-31T09:00:00Z", "to": "2026-01-31T10:00:00Z"}
    assert accepted(await queue.http.get(path, params=past))["depths"] == []
    assert "depths" not in accepted(await queue.http.get(path, params={"tenant": "a"})), "it is not kept by tenant"


async def test_an_hour_has_the_percentiles_of_its_minutes_together(queue: Topic, steps: Steps, pools: Pools) -> None:
    """Those of two minutes can't be added: 99 quick jobs in one and one slow in another have a p95 that is quick."""
    await queue.append({"data": 1})
    await steps()
    await pools.rest.execute(
        """INSERT INTO holdfast.topic_stats (minute, topic_id, topic, tenant, wait_count, wait_p50_ms, wait_p95_ms,
               wait_p99_ms, wait_buckets, wait_counts)
           SELECT '2026-01-31T09:00Z'::timestamptz + x.n * interval '1 min', id, name, '', x.count, x.ms, x.ms, x.ms,
                  ARRAY[holdfast.duration_bucket(x.ms)], ARRAY[x.count]
           FROM holdfast.topics, (VALUES (0, 99, 8), (1, 1, 90000)) AS x(n, count, ms) WHERE name = $1""",
        queue.name,
    )
    window = {"from": "2026-01-31T09:00:00Z", "to": "2026-01-31T10:00:00Z"}
    (hour,) = await steps(step=3_600, **window)
    assert hour["wait"] == {"count": 100, "p50_ms": 8, "p95_ms": 8, "p99_ms": 8}
    minutes = await steps(**window)
    assert [one["wait"] for one in minutes] == [
        {"count": 99, "p50_ms": 8, "p95_ms": 8, "p99_ms": 8},
        {"count": 1, "p50_ms": 90_000, "p95_ms": 90_000, "p99_ms": 90_000},
    ]
    (late,) = await steps(step=3_600, **{**window, "from": "2026-01-31T09:01:00Z"})
    assert late["at"] == hour["at"], "steps are whole ones"


async def test_what_makes_no_sense_is_refused(queue: Topic) -> None:
    at = "2026-01-31T09:00:00Z"
    for query in (
        *("step=59", "step=61", "step=86460", "step=x", "from=yesterday", "from=2026-01-31T09:00:00"),
        *(f"from={at}&to={at}", f"from={at}&to=2026-02-28T09:00:00Z", "tenant=%00", "tenant=" + "x" * 129, "by=tenant"),
    ):
        refused(await queue.http.get(f"{queue.path}/stats/history?{query}"), 400, "invalid_request")


async def test_the_ends_of_time_are_answered(queue: Topic) -> None:
    for query in (
        "from=0001-01-01T00:00:00Z&to=0001-01-01T00:01:00Z&step=3600",
        "from=9999-12-31T23:58:00Z&to=9999-12-31T23:59:30Z",
        "from=9999-12-31T23:58:00Z&to=9999-12-31T23:59:59Z&step=86400",
    ):
        answer = await queue.http.get(f"{queue.path}/stats/history?{query}")
        assert answer.status_code in (200, 400), answer.text
