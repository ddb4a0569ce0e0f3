"""GET /metrics: each number moves for its cause, whoever asks may, and it answers without the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from app.base.metrics.catalogue import PREFIX
from app.features.upkeep.reapers import Reapers
from app.kernel.counts import levels
from app.kernel.counts.levels import Levels
from app.main import SWEEPS
from tests.api.dialect import Body, Topic, eventually, refused, until_waiting
from tests.api.events import working
from tests.api.keyring import bearer, client
from tests.api.test_health import Link

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

Sample = tuple[str, frozenset[tuple[str, str]]]


class Numbers(dict[Sample, float]):
    """A scrape: the values by name and labels."""

    def of(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name with these labels."""
        wanted = set(labels.items())
        return sum(value for (of, has), value in self.items() if of == PREFIX + name and wanted <= has)


def parsed(text: str) -> Numbers:
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    numbers = Numbers({(s.name, frozenset(s.labels.items())): s.value for s in samples})
    assert len(numbers) == len(samples), "a sample stands there twice"
    return numbers


async def scrape(http: httpx.AsyncClient, path: str = "/metrics") -> Numbers:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return parsed(answer.text)


@pytest.fixture
async def mine(serve: Serve) -> AsyncIterator[Running]:
    """A service that nobody else calls."""
    service = await serve()
    yield service
    await service.stop()


@pytest.fixture
async def http(mine: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(mine) as http:
        yield http


@pytest.fixture
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topics' gauges are read for each scrape."""
    monkeypatch.setattr(levels, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(levels, "SHARE", 0)


async def test_a_jobs_way_is_counted(queue: Topic, http: httpx.AsyncClient) -> None:
    name = queue.name
    before = await scrape(http)
    seqs = await queue.add(5)
    first = await queue.claim(max=3)
    await queue.extend("n", seqs[:1], 60_000)
    await queue.nack("n", seqs[2:3])
    assert (await queue.ack("n", seqs[:2]))["acked"] == 2
    assert (await queue.ack("n", seqs[:2]))["acked"] == 0
    again = await queue.claim(max=10)
    assert (first["count"], again["count"]) == (3, 3)
    await queue.ack("n", [job["$seq"] for job in again["claimed"]])
    assert (await queue.claim())["count"] == 0
    now = await scrape(http)

    def moved(metric: str, **labels: str) -> float:
        return now.of(metric, **labels) - before.of(metric, **labels)

    for verb, calls in {"enqueue": 1, "claim": 3, "extend": 1, "nack": 1, "ack": 3}.items():
        assert moved("calls_total", dialect="v0", verb=verb, code="ok") == calls, verb
        assert moved("call_seconds_count", dialect="v0", verb=verb) == calls, verb
        assert moved("call_jobs_count", verb=verb) == calls, verb
        assert moved("group_calls_sum", verb=verb) == calls, verb
        assert (
            moved("statement_seconds_count", statement=f"{'enqueue' if verb == 'enqueue' else 'claim'}/{verb}") >= calls
        ), verb
    for verb, jobs in {"enqueue": 5, "claim": 6, "extend": 1, "nack": 1, "ack": 7}.items():
        assert moved("call_jobs_sum", verb=verb) == moved("group_jobs_sum", verb=verb) == jobs, verb
    verbs = ("enqueued", "claimed", "acked", "nacked", "extended")
    counted = {verb: now.of(f"topic_{verb}_total", topic=name) for verb in verbs}
    assert counted == {"enqueued": 5, "claimed": 6, "acked": 5, "nacked": 1, "extended": 1}
    assert now.of("topic_wait_seconds_count", topic=name) == 6
    assert now.of("topic_processing_seconds_count", topic=name) == 5
    assert now.of("topic_deliveries_count", topic=name) == 5
    assert now.of("topic_deliveries_sum", topic=name) == 6
    assert now.of("topic_deliveries_bucket", topic=name, le="1.0") == 4
    assert moved("claim_passes_total") >= 3
    assert moved("claim_pass_seconds_total") > 0
    assert moved("pool_wait_seconds_count") >= 9
    assert now.of("database_up") == 1


async def test_wait_and_processing_are_what_the_clock_says(queue: Topic, http: httpx.AsyncClient) -> None:
    """Waiting counts from when a job could be claimed, not from when it was enqueued."""
    await queue.append({"data": 1, "delay_ms": 2_000})
    job = await queue.take()
    await asyncio.sleep(0.3)  # the thing that is measured
    await queue.ack("n", [job["$seq"]])
    now = await scrape(http)
    assert 0 <= now.of("topic_wait_seconds_sum", topic=queue.name) < 1.9
    assert now.of("topic_processing_seconds_sum", topic=queue.name) >= 0.3
    assert now.of("calls_total", verb="claim_wait", code="ok") == 1
    assert now.of("call_seconds_sum", verb="claim_wait") >= 0.3
    assert now.of("call_seconds_count", verb="claim") == 0


@pytest.mark.usefixtures("looks_each_time")
async def test_gauges_of_a_topic_are_what_it_holds(queue: Topic, http: httpx.AsyncClient) -> None:
    await queue.add(4)
    await queue.add(2, delay_ms=3_600_000)
    await queue.claim(max=1, lease_ms=3_600_000)

    async def shown() -> tuple[float, ...]:
        now = await scrape(http)
        gauges = ("ready", "in_flight", "scheduled", "blocked")
        return tuple(now.of(f"topic_{gauge}", topic=queue.name) for gauge in gauges)

    assert await shown() == (3, 1, 2, 0)
    now = await scrape(http)
    assert now.of("topic_bytes", topic=queue.name) == 6, "of the numbers 1 to 4, and 1 and 2"
    assert now["topics_topic_bytes_live", frozenset({("topic", queue.name)})] == 6
    assert now["topics_topic_records_live", frozenset({("topic", queue.name)})] == 6
    first = (await scrape(http)).of("topic_oldest_claimable_age_seconds", topic=queue.name)
    await asyncio.sleep(0.05)
    assert 0 < first + 0.05 <= (await scrape(http)).of("topic_oldest_claimable_age_seconds", topic=queue.name)
    await queue.claim(max=10)
    assert await shown() == (0, 4, 2, 0)
    assert (await scrape(http)).of("topic_oldest_claimable_age_seconds", topic=queue.name) == 0
    await queue.add(3, group="g")
    assert await shown() == (1, 4, 2, 2)
    for goal_ms, seconds in ((1_500, 1.5), (0, 0), (None, 60)):
        await queue.put(wait_goal_ms=goal_ms)
        assert (await scrape(http)).of("topic_wait_goal_seconds", topic=queue.name) == seconds


async def test_topics_are_looked_at_once_in_five_seconds(queue: Topic, http: httpx.AsyncClient) -> None:
    await asyncio.gather(*(scrape(http) for _ in range(5)))
    await queue.add(1)
    now = await scrape(http)
    assert now.of("statement_seconds_count", statement="counts/depths") == 1
    assert now.of("topic_ready", topic=queue.name) == 0, "of the last look"
    assert 0 <= now.of("topic_gauges_age_seconds") < 30


async def test_ways_out_are_counted(http: httpx.AsyncClient, topic: str, mine: Running) -> None:
    dead, plain = Topic(http, topic), Topic(http, f"{topic}.failing")
    await dead.put(max_deliveries=1, dead_letter=f"{topic}.dlq")
    await plain.put(max_deliveries=1, on_exhausted="fail")
    for queue in (dead, plain):
        await queue.nack("n", await queue.add(1) and [(await queue.take())["$seq"]])
    await plain.append({"data": 1, "ttl_ms": 1})

    async def expired() -> bool:
        await mine.context.core(Reapers).run("expiry")
        return (await scrape(http)).of("topic_expired_total", topic=plain.name) == 1

    await eventually(expired)
    now = await scrape(http)
    assert now.of("topic_dead_lettered_total", topic=dead.name) == 1
    assert now.of("topic_failed_total", topic=plain.name) == 1
    assert now.of("topic_wait_seconds_count", topic=f"{topic}.dlq") == 0
    await Topic(http, f"{topic}.dlq").take()
    now = await scrape(http)
    assert now.of("topic_claimed_total", topic=f"{topic}.dlq") == 1
    assert now.of("topic_wait_seconds_count", topic=f"{topic}.dlq") == 0, "its age is that of the job it was"


async def test_refusals_are_counted_by_code(queue: Topic, http: httpx.AsyncClient) -> None:
    before = await scrape(http)
    refused(await http.post(f"{queue.path}/claim", json={"node": ""}), 400, "invalid_request")
    refused(await http.post(f"{queue.path}.absent/ack", json={"node": "n", "seqs": [1]}), 404, "topic_not_found")
    refused(await http.get("/nowhere"), 404, "not_found")
    now = await scrape(http)
    expected = {
        ("v0", "claim", "invalid_request"): 1,
        ("v0", "ack", "topic_not_found"): 1,
        ("none", "none", "not_found"): 1,
        ("none", "metrics", "ok"): 1,
    }
    for (dialect, verb, code), calls in expected.items():
        labels = {"dialect": dialect, "verb": verb, "code": code}
        assert now.of("calls_total", **labels) - before.of("calls_total", **labels) == calls, labels


async def test_who_waits_and_who_streams_is_shown(queue: Topic, http: httpx.AsyncClient, mine: Running) -> None:
    waiting = asyncio.create_task(queue.take())
    await until_waiting(mine, queue.name, 1)
    assert (await scrape(http)).of("waiters_parked") == 1
    await queue.add(1)
    await waiting
    async with working(queue, "w", max=1) as stream:
        await queue.add(1)
        await stream.job()
        now = await scrape(http)
        assert now.of("streams_open") == 1
        assert now.of("stream_frames_total", event="job") == 1
        assert now.of("stream_frames_total", event="heartbeat") >= 1

    async def closed() -> bool:
        now = await scrape(http)
        return (now.of("streams_open"), now.of("waiters_parked"), now.of("calls_total", verb="work")) == (0, 0, 1)

    await eventually(closed)
    assert (await scrape(http)).of("call_seconds_count", verb="work") == 0


async def test_sweeps_and_the_process_are_shown(http: httpx.AsyncClient, mine: Running) -> None:
    for sweep in SWEEPS:
        await mine.context.core(Reapers).run(sweep.name)
    now = await scrape(http)
    for sweep in SWEEPS:
        assert now.of("sweep_runs_total", sweep=sweep.name, outcome="ok") >= 1
        assert abs(now.of("sweep_last_run_timestamp_seconds", sweep=sweep.name) - time.time()) < 60
        assert now.of("sweep_seconds_total", sweep=sweep.name) > 0
    assert now.of("processes") == now.of("build_info") == 1
    assert 0 < now.of("process_uptime_seconds") < 600
    assert now.of("process_resident_memory_bytes") > 1_000_000
    assert now.of("pool_connections_max", pool="hot") == 8
    assert now.of("pool_connections", pool="hot") >= 2


@pytest.mark.usefixtures("looks_each_time")
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_deleted_topic_is_shown_no_more(
    queue: Topic, http: httpx.AsyncClient, service: Running, elsewhere: bool
) -> None:
    await queue.add(1)
    assert (await scrape(http)).of("topic_enqueued_total", topic=queue.name) == 1
    async with client(service) as other:
        await queue.through(other if elsewhere else http).drop()
    assert [labels for _, labels in await scrape(http) if ("topic", queue.name) in labels] == []


async def test_no_more_topics_than_set_are_shown(serve: Serve, topic: str) -> None:
    """Queues and logs."""
    service = await serve(metrics_topics=2)
    async with client(service) as http:
        names = [f"{topic}.{i}" for i in range(4)]
        for name, kind in zip(names, ("queue", "log", "queue", "log"), strict=True):
            await Topic(http, name).put(type=kind)
            await Topic(http, name).add(1)
        now = await scrape(http)
        shown = {dict(labels)["topic"] for _, labels in now if dict(labels).get("topic")}
        assert shown == set(names[:2])
        assert now.of("topic_metrics_truncated") == 1
        assert (now.of("call_jobs_sum", verb="enqueue"), now.of("call_jobs_sum", verb="append")) == (2, 2)
    await service.stop()


async def test_keys_see_what_they_may(serve: Serve, topic: str) -> None:
    guarded = await serve(api_keys=f"all,reads:read:{topic}.a,writes:write")
    async with client(guarded, "all") as http:
        for name in (f"{topic}.a", f"{topic}.b"):
            await Topic(http, name).put()
            await Topic(http, name).add(1)
        for path in ("/metrics", "/v0/metrics"):
            whole, part = [parsed((await http.get(path, headers=bearer(key))).text) for key in ("all", "reads")]
            assert whole.of("topic_enqueued_total") == 2
            assert part.of("topic_enqueued_total") == part.of("topic_enqueued_total", topic=f"{topic}.a") == 1
            assert f"{topic}.b" not in {dict(labels).get("topic") for _, labels in part}
            assert whole.of("database_bytes") > 0
            assert (part.of("database_up"), part.of("database_bytes")) == (1, 0), "nothing of the server"
    await guarded.stop()


@pytest.mark.parametrize("kind", ["queue", "log"])
async def test_what_a_schema_refuses_is_counted(http: httpx.AsyncClient, topic: str, kind: str) -> None:
    v0 = Topic(http, topic)
    await v0.put(type=kind, schema={"type": "integer"})
    await v0.append({"data": 1})
    refused(await http.post(v0.path, json={"records": [{"data": 1}, {"data": "two"}]}), 422, "schema_violation")
    count = 2
    if kind == "queue":
        answer = await http.post("/api/messages", json={"topic": topic, "payload": '"three"'})
        assert answer.status_code == 422
        count = 3
    found = await scrape(http)
    assert found.of("topic_schema_violations_total", topic=topic) == count
    assert found.of("topic_enqueued_total" if kind == "queue" else "topic_appended_total", topic=topic) == 1


async def test_the_v0_route_answers_json_where_that_is_accepted(queue: Topic, http: httpx.AsyncClient) -> None:
    await queue.add(2)
    assert set(await scrape(http, "/v0/metrics")) >= {("topics_topics", frozenset()), ("topics_ready", frozenset())}
    answer = await http.get("/v0/metrics", headers={"accept": "application/json"})
    assert answer.headers["content-type"] == "application/json"
    body: Body = answer.json()
    assert body["topics"] == sum(body[f"topics_{name}"] for name in ("fsync", "disk", "memory", "ephemeral"))
    assert body["queue_topics"] >= 1
    assert (body["ready"], body["routers"], body["sse_connections"]) == (True, 0, 0)
    samples = body["metrics"]["holdfast_topic_enqueued"]["samples"]
    assert {"name": "holdfast_topic_enqueued_total", "labels": {"topic": queue.name}, "value": 2} in samples
    plain = await http.get("/metrics", headers={"accept": "application/json"})
    assert plain.headers["content-type"].startswith("text/plain")


async def test_openmetrics_is_had_for_the_asking(queue: Topic, http: httpx.AsyncClient) -> None:
    await queue.add(1)
    for version in ("; version=1.0.0", ""):
        answer = await http.get("/metrics", headers={"accept": f"application/openmetrics-text{version}"})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        families = {family.name for family in openmetrics(answer.text)}  # type: ignore[no-untyped-call]
        assert "holdfast_topic_enqueued" in families
    nonsense = await http.get("/metrics", headers={"accept": 'text/plain; version=x; escaping="y'})
    assert nonsense.status_code == 200


async def test_without_its_database_it_says_so_and_what_it_knows(serve: Serve, database_url: str, topic: str) -> None:
    link = Link(database_url)
    await link.join()
    service = await serve(database_url=link.url)
    async with httpx.AsyncClient(base_url=service.url, timeout=35) as http:
        queue = Topic(http, topic)
        await queue.put()
        await queue.add(3)
        assert (await scrape(http)).of("database_up") == 1
        await link.cut()
        service.context.core(Levels).forget()  # as after five seconds
        now = await scrape(http)
        assert now.of("database_up") == 0
        assert now.of("topic_enqueued_total", topic=topic) == 3
        assert (await http.get("/v0/metrics", headers={"accept": "application/json"})).json()["ready"] is False
        refused(await http.post(f"{queue.path}/claim", json={"node": "n"}), 503, "not_ready")
        assert (await scrape(http)).of("calls_total", verb="claim", code="not_ready") == 1
        await link.join()

        async def up() -> bool:
            return (await scrape(http)).of("database_up") == 1

        await eventually(up)
    await service.stop()
    await link.cut()
