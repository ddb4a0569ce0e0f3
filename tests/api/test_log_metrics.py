"""GET /metrics, of logs, readers and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.api.dialect import Topic
from tests.api.keyring import Services, client
from tests.api.test_metrics import http, looks_each_time, mine, scrape
from tests.api.watches import made, watching

__all__ = ["http", "looks_each_time", "mine"]

ORIGINALS = ("topics", "queue_topics", "records_live", "bytes_live", "queue_leases_in_flight", "ready")


@pytest.fixture
async def alone(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service whose database nothing else uses: some gauges are of all topics."""
    async with client(await services.start()) as http:
        yield http


@pytest.fixture
async def log(http: httpx.AsyncClient, topic: str) -> Topic:
    made = Topic(http, topic)
    await made.put(type="log", cap_records=3)
    return made


async def test_appends_and_reads_are_counted(log: Topic, http: httpx.AsyncClient) -> None:
    before = await scrape(http)
    await log.append({"data": 1}, {"data": 2})
    await log.append({"data": 3})
    assert len((await log.post("diff"))["records"]) == 3
    assert (await log.post("diff", from_seq=3))["records"] == []
    assert len((await log.post("diff", from_seq=1, wait_ms=10))["records"]) == 2
    now = await scrape(http)

    def moved(metric: str, **labels: str) -> float:
        return now.of(metric, **labels) - before.of(metric, **labels)

    assert moved("calls_total", dialect="v0", verb="append", code="ok") == 2
    assert moved("call_seconds_count", dialect="v0", verb="append") == 2
    assert (moved("call_jobs_count", verb="append"), moved("call_jobs_sum", verb="append")) == (2, 3)
    assert (moved("group_calls_sum", verb="append"), moved("group_jobs_sum", verb="append")) == (2, 3)
    assert moved("calls_total", dialect="v0", verb="diff", code="ok") == 2
    assert moved("calls_total", dialect="v0", verb="diff_wait", code="ok") == 1
    assert (moved("call_jobs_count", verb="diff"), moved("call_jobs_sum", verb="diff")) == (3, 5)
    assert now.of("topic_appended_total", topic=log.name) == 3
    assert now.of("topic_read_total", topic=log.name) == 5


@pytest.mark.usefixtures("looks_each_time")
async def test_gauges_of_a_log_are_what_it_holds(log: Topic, http: httpx.AsyncClient) -> None:
    await log.append(*({"data": i, "meta": {"a": 1}} for i in range(5)))
    state, now = await log.state(), await scrape(http)
    assert (state["count"], state["bytes"]) == (3, 3 * 8)
    expected = {"head_seq": 5, "earliest_seq": 3, "records": 3, "bytes": 24}
    assert {name: now.of(f"topic_{name}", topic=log.name) for name in expected} == expected
    label = frozenset({("topic", log.name)})
    original = {"head_seq": 5, "earliest_seq": 3, "records_live": 3, "bytes_live": 24}
    assert {name: now[f"topics_topic_{name}", label] for name in original} == original
    mirror = (await http.get("/v0/metrics", headers={"accept": "application/json"})).json()
    assert mirror["records_live"] >= 3
    assert mirror["bytes_live"] >= 24


@pytest.mark.usefixtures("looks_each_time")
async def test_a_queue_shows_how_far_it_goes(queue: Topic, http: httpx.AsyncClient) -> None:
    async def shown() -> tuple[float, float]:
        now = await scrape(http)
        return now.of("topic_head_seq", topic=queue.name), now.of("topic_earliest_seq", topic=queue.name)

    assert await shown() == (0, 1)
    await queue.add(3)
    await queue.ack("n", [(await queue.take())["$seq"]])
    assert await shown() == (3, 2)
    await queue.ack("n", [job["$seq"] for job in (await queue.claim(max=2))["claimed"]])
    assert await shown() == (3, 4)


@pytest.mark.usefixtures("looks_each_time")
async def test_the_dead_are_those_that_failed_and_those_in_their_queue(queue: Topic, http: httpx.AsyncClient) -> None:
    async def dead() -> float:
        return (await scrape(http)).of("topic_dead", topic=queue.name)

    await queue.put(max_deliveries=1, on_exhausted="fail")
    await queue.add(3)
    assert await dead() == 0
    await queue.nack("n", [job["$seq"] for job in (await queue.claim(max=2))["claimed"]])
    assert await dead() == 2
    letters = Topic(http, f"{queue.name}.dlq")
    await queue.put(max_deliveries=1, dead_letter=letters.name)
    await queue.nack("n", [(await queue.take())["$seq"]])
    assert await dead() == 3
    await letters.ack("n", [(await letters.take())["$seq"]])
    assert await dead() == 2


@pytest.mark.usefixtures("looks_each_time")
async def test_watches_are_connections_and_sessions(log: Topic, http: httpx.AsyncClient) -> None:
    async with watching(http, await made(http, log)):
        mirror = (await http.get("/v0/metrics", headers={"accept": "application/json"})).json()
        assert (mirror["watch_sessions"], mirror["sse_connections"]) == (1, 1)


@pytest.mark.usefixtures("looks_each_time")
async def test_the_originals_gauges_move_for_their_causes(alone: httpx.AsyncClient, topic: str) -> None:
    http, queue = alone, Topic(alone, topic)

    async def shown() -> dict[str, float]:
        now = await scrape(http)
        classes = {labels: value for (name, labels), value in now.items() if name == "topics_topics_by_class"}
        plain = {name: now[f"topics_{name}", frozenset()] for name in ORIGINALS}
        return plain | {f"topics_{dict(labels)['class']}": value for labels, value in classes.items()}

    await queue.put()
    await queue.add(2)
    before = await shown()
    await queue.claim(max=1)
    other = Topic(http, f"{queue.name}.other")
    await other.put(type="log", durable=True)
    await other.append({"data": "four"})
    now = await shown()
    moved = {name: value - before[name] for name, value in now.items() if value != before[name]}
    assert moved == {
        "topics": 1,
        "topics_fsync": 1,
        "records_live": 1,
        "bytes_live": 6,
        "queue_leases_in_flight": 1,
    }
    assert now["ready"] == 1
    mirror = (await http.get("/v0/metrics", headers={"accept": "application/json"})).json()
    assert {name: mirror[name] for name in now} == now
    await other.drop()
