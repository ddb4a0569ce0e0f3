"""Every verb of the v0 dialect, through both clients: what it sends is taken, and what comes back is typed."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import AsyncClient, Client, Record, TopicConfig, errors, models
from tests.api.keyring import Services
from tests.conftest import Running
from tests.routes import document
from tests.sdk.conftest import Serve

ROOT = Path(__file__).parents[2]

KEY = "a-key-of-the-tests"
# Of the v0 dialect: the same as another route.
LEFT_OUT = {"GET /healthz", "GET /readyz", "GET /v0/metrics"}


@pytest.fixture(scope="module")
async def alone(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service on a database of its own, which wants a key."""
    return await (await Services.make(serve, new_database)).start(api_keys=KEY)


class Awaited:
    """The sync client's answers, for who awaits them: the calls run in a thread."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name == "topic":
            return lambda *args: Awaited(value(*args))
        if not callable(value) or inspect.isclass(value):
            return Awaited(value)
        if name in ("work", "events"):
            return lambda *args, **kwargs: Opened(value(*args, **kwargs))
        if name in ("list", "jobs", "jobs_as_of", "stats", "audit", "overview"):
            return lambda *args, **kwargs: Listed(value(*args, **kwargs))
        return lambda *args, **kwargs: asyncio.to_thread(value, *args, **kwargs)


class Listed:
    def __init__(self, pages: Any) -> None:
        self._pages = pages

    async def page(self) -> Any:
        return await asyncio.to_thread(self._pages.page)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in await asyncio.to_thread(list, self._pages):
            yield item


class Opened:
    def __init__(self, events: Any) -> None:
        self._events = events

    async def __aenter__(self) -> Opened:
        await asyncio.to_thread(self._events.__enter__)
        self._items = iter(self._events)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self._events.__exit__, None, None, None)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (item := await asyncio.to_thread(next, self._items, None)) is not None:
            yield item


@pytest.fixture
def asked() -> list[str]:
    """The requests that were made, as "GET /v0/topics/mail"."""
    return []


@pytest.fixture(params=["async", "sync"])
async def api(request: pytest.FixtureRequest, alone: Running, asked: list[str]) -> AsyncIterator[Any]:
    if request.param == "async":

        async def note(sent: httpx.Request) -> None:
            asked.append(f"{sent.method} {sent.url.path}")

        async with (
            httpx.AsyncClient(event_hooks={"request": [note]}) as http,
            AsyncClient(alone.url, KEY, http=http) as client,
        ):
            yield client
    else:

        def note_sync(sent: httpx.Request) -> None:
            asked.append(f"{sent.method} {sent.url.path}")

        with (
            httpx.Client(event_hooks={"request": [note_sync]}) as sync_http,
            Client(alone.url, KEY, http=sync_http) as sync,
        ):
            yield Awaited(sync)


async def test_every_route_has_a_verb(api: Any, asked: list[str], topic: str) -> None:
    queue = api.topic(topic)
    await the_topic_itself(api, queue, topic)
    await jobs_come_and_go(api, queue, topic)
    await jobs_are_looked_after(api, queue)
    await schedules(api, topic)
    await logs_and_watches(api, f"{topic}.log")
    await users(api)
    await operators(api, queue)
    await keys(api)

    documented = document()["paths"]
    routes = {
        f"{method.upper()} {path}"
        for path, methods in documented.items()
        for method in methods
        if method != "parameters" and not path.startswith(("/api/", "/in/"))
    }
    reached = {route for route in routes if any(_fits(line, route) for line in asked)}
    assert routes - reached == LEFT_OUT


def _fits(line: str, route: str) -> bool:
    return re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route)), line) is not None


async def the_topic_itself(api: Any, queue: Any, name: str) -> None:
    config = TopicConfig(
        max_deliveries=2,
        dead_letter=f"{name}.dead",
        backoff=models.Backoff(kind="fixed", base_ms=1),
        tenant_weights={"acme": 3},
        user_events=True,
    )
    put = await queue.put(config)
    assert (put.created, put.config.durability, put.config.backoff.base_ms) == (True, "fsync", 1)
    assert put.config.tenant_weights == {"acme": 3}
    state = await queue.get(touch=False)
    assert (state.type, state.count, state.queue.ready) == ("queue", 0, 0)
    assert state.last_write_at is None
    names = [summary.topic async for summary in api.topics.list(prefix=put.topic, page_size=1)]
    assert put.topic in names
    assert (await queue.pause(tenant="acme")).paused_tenants == ("acme",)
    assert (await queue.resume(tenant="acme")).paused_tenants == ()
    assert (await queue.resume()).paused is False


async def jobs_come_and_go(api: Any, queue: Any, name: str) -> None:
    assert (await queue.claim()).jobs == ()
    at = datetime.now(UTC) - timedelta(seconds=5)
    one = await queue.enqueue({"to": "ada"}, tag="news", meta={"a": 1}, priority=9, user_id="ada")
    many = await queue.enqueue_many(
        [
            Record(data=b"\0\xff", priority=8, run_at=at, max_deliveries=1),
            Record(data="text", content_type="text/plain", priority=7, tenant="acme", ttl_ms=60_000),
            Record(data=None, priority=6, key="k", group="g", dedupe_id="d"),
            [at],
        ],
        node="me",
    )
    again = await queue.enqueue("dropped", group="g", dedupe_id="d")
    assert (again.seq, again.duplicate) == (many.seqs[2], True)
    claimed = await queue.claim(max=10, wait_ms=5_000, lease_ms=60_000)
    first, raw, text, null, moment = sorted(claimed.jobs, key=lambda job: job.seq)
    assert (first.seq, first.data, first.tag, first.deliveries) == (one.seq, {"to": "ada"}, "news", 1)
    assert first.meta == {"a": 1, "$user_id": "ada"}
    assert first.deadline - first.enqueued_at > timedelta(seconds=55)
    assert (raw.data, text.data, text.tenant) == (b"\0\xff", "text", "acme")
    assert (null.data, null.key, null.group) == (None, "k", "g")
    assert moment.data == [at.isoformat()]
    extended = await queue.extend(first, raw, lease_ms=90_000, progress=[models.Progress(40, "half way"), None])
    assert set(extended.deadlines) == {first.seq, raw.seq}
    assert (await queue.result(first.seq)).progress.note == "half way"
    assert (await queue.ack(first, text, results=[{"ok": True}, None])).acked == 2
    assert (await queue.result(first.seq, wait_ms=1_000)).result == {"ok": True}
    assert (await queue.nack(null, delay_ms=60_000, errors=["not yet"], refund=True)).refunded == (null.seq,)
    assert (await queue.fail(raw, errors=["KeyError: 'x'"])).failed == 1
    assert (await queue.ack(models.Lease(moment.seq, moment.node))).acked == 1
    assert (await queue.ack(moment)).skipped == (moment.seq,)
    await queue.enqueue("of any topic", tag="any")
    [any_job] = (await api.topics.claim(name, max=2, wait_ms=5_000, tags=["any"])).jobs
    assert (any_job.topic, any_job.data) == (name, "of any topic")
    assert (await queue.ack(any_job)).acked == 1
    async with queue.work(max=2, lease_ms=30_000) as jobs:
        streamed = await queue.enqueue("streamed")
        async for job in jobs:
            assert (job.seq, job.data) == (streamed.seq, "streamed")
            await queue.ack(job)
            break


async def jobs_are_looked_after(api: Any, queue: Any) -> None:
    [waiting] = [job async for job in queue.jobs(state="scheduled", order="oldest", limit=1)]
    assert (waiting.key, waiting.last_error) == ("k", "not yet")
    changed = await queue.change(waiting.seq, data=b"\1", priority=3, tag="late", meta={"b": 2})
    assert (changed.data, changed.priority, changed.tag) == (b"\1", 3, "late")
    changed = await queue.change(waiting.seq, tag=None, run_at=datetime.now(UTC) + timedelta(hours=1))
    assert (changed.tag, changed.data, changed.state) == (None, b"\1", "scheduled")
    assert (await queue.job(waiting.seq)).seq == waiting.seq
    assert (await queue.history(waiting.seq, limit=2)).events[0].event == "enqueued"
    assert (await queue.explain_job(waiting.seq)).state == "scheduled"
    assert (await queue.explain()).scheduled == 1
    assert (await queue.scale()).scheduled == 1
    assert (await queue.explain(group="g")).head == waiting.seq
    failures = await queue.failures(since=datetime.now(UTC) - timedelta(hours=1), limit=5)
    [cluster] = failures.failures
    assert (cluster.title, cluster.count, cluster.deliveries.max) == ("KeyError: *", 1, 1)
    assert (await queue.as_of(datetime.now(UTC))).scheduled == 1
    [then] = [job async for job in queue.jobs_as_of(datetime.now(UTC), state="scheduled", limit=5)]
    assert (then.seq, then.deliveries, then.key) == (waiting.seq, waiting.deliveries, "k")
    assert {tenant.tenant for tenant in (await queue.stats().page()).items} == {"", "acme"}
    assert (await queue.totals()).scheduled == 1
    assert (await queue.stats_history(step=120)).step_s == 120
    filtered = models.RequeueFilter(error="KeyError")
    assert (await queue.requeue(filter=filtered, dry_run=True)).id is None
    matched = await queue.requeue(filter=filtered, rate=100, canary=models.Canary(first=1, timeout_ms=100))
    operation = await api.operations.get(matched.id)
    await api.operations.cancel(matched.id)
    while not operation.over:
        operation = await api.operations.get(matched.id)
    assert [one.id for one in (await queue.operations()).operations] == [matched.id]
    saved = await api.saved_views.save("late orders", "/admin/topics/orders/jobs?q=older%3A1h")
    assert (await api.saved_views.all()).views == (saved,)
    assert await api.saved_views.delete("late orders") == saved
    nobody = models.CancelFilter(node="nobody", data=("a=1",), priority=9)
    assert (await queue.cancel_all(nobody, dry_run=True)).id is None
    ending = await api.operations.get((await queue.cancel_all(nobody, rate=100)).id)
    assert (ending.kind, ending.matched, ending.gone, ending.marked) == ("cancel", 0, 0, 0)
    assert (await queue.jobs(priority=9, node="nobody", error="x", data=["a=1", "b.c=2"]).page()).items == ()
    assert (await queue.delete_failures(cluster.cluster)).cluster == cluster.cluster
    assert (await queue.release([waiting.seq], node="nobody", refund=True)).skipped == (waiting.seq,)
    assert (await queue.release(group="g", tenant="acme")).released == 0
    assert (await queue.cancel([waiting.seq, 4711])).skipped == (4711,)
    assert (await queue.cancel(filter=models.CancelFilter(tag="none"))).cancelled == 0
    with pytest.raises(errors.NotFound):
        await queue.job(waiting.seq)


async def schedules(api: Any, topic: str) -> None:
    made = await api.schedules.put(
        "nightly", topic=topic, cron="30 2 * * *", time_zone="Europe/Berlin", missed="once", record=Record(data=b"\2")
    )
    assert (made.record["data"], len(made.next_fires)) == ({"$base64": "Ag=="}, 5)
    assert (await api.schedules.pause("nightly")).paused
    assert not (await api.schedules.resume("nightly")).paused
    assert (await api.schedules.run("nightly")).topic == topic
    assert [one.name async for one in api.schedules.list(prefix="night")] == ["nightly"]
    assert (await api.schedules.get("nightly")).fires == 1
    await api.schedules.delete("nightly")
    with pytest.raises(errors.NotFound):
        await api.schedules.delete("nightly")


async def logs_and_watches(api: Any, name: str) -> None:
    log = api.topic(name)
    appended = await log.append([1, Record(data=2, tag="t", node="web")], config=TopicConfig(type="log", cap_records=2))
    assert (appended.created, appended.seqs) == (True, (1, 2))
    await log.append([3])
    diff = await log.diff(0, limit=1, include_tags=True, wait_ms=10)
    assert (diff.tombstone.reason, diff.tombstone.gap_to) == ("cap", 1)
    assert [(record.seq, record.data, record.tag, record.node) for record in diff.records] == [(2, 2, "t", "web")]
    watch = await api.watches.make({name: 0, "nowhere": None}, include_tags=True, lenient=True)
    assert watch.topics[name].head_seq == 3
    seen = []
    async with api.watches.events(watch.wid) as news:
        async for one in news:
            seen.append(type(one))
            if isinstance(one, models.Records):
                assert [record.data for record in one.records] == [2, 3]
            if isinstance(one, models.CaughtUp):
                await log.delete()
            if isinstance(one, models.TopicDeleted):
                break
    assert seen == [models.Tombstone, models.Records, models.CaughtUp, models.TopicDeleted]


async def users(api: Any) -> None:
    token = await api.users.token("ada", ttl_ms=60_000)
    first = await api.users.send("ada", "packing", {"percent": 40})
    async with api.users.events("ada", token=token.token, after=first - 1) as told:
        async for event in told:
            assert (event.id, event.event, event.data) == (first, "packing", {"percent": 40})
            break


async def operators(api: Any, queue: Any) -> None:
    assert (await api.health()).status == "ok"
    assert (await api.ready()).status == "ready"
    assert "holdfast_" in await api.metrics()
    assert (await api.admin.horizon()).level in ("ok", "watch", "bad")
    assert all(seen.troubles for seen in (await api.topics.overview(troubled=True, sort="worst").page()).items)
    assert "expiry" in {reaper.name for reaper in await api.admin.reapers()}
    assert (await api.admin.run_reaper("expiry", wait_ms=10_000)).running is False
    assert all(run.finished_at for run in await api.admin.reaper_runs("expiry"))
    [entry, *_] = (await api.admin.audit(page_size=5, since=datetime(2026, 1, 1, tzinfo=UTC)).page()).items
    assert entry.at.tzinfo is UTC
    assert (await queue.delete_records(before_seq=1_000, tag="*")).head_seq > 0
    assert (await queue.drain(wait_ms=1)).draining
    with pytest.raises(errors.Draining):
        await queue.enqueue(1)
    assert (await queue.delete()).deleted
    assert not (await queue.delete(if_empty=True)).deleted


async def keys(api: Any) -> None:
    made = await api.keys.make("k", ["read"], prefixes=["mail"], tenant="acme", expires_in_ms=60_000)
    assert (made.prefixes, made.tenant, made.state) == (("mail",), "acme", "live")
    assert made.id in [key.id async for key in api.keys.list(page_size=1)]
    rotated = await api.keys.rotate(made.id, grace_ms=1_000)
    assert rotated.secret != made.secret
    assert (await api.keys.get(made.id)).old_secret_until is not None
    assert (await api.keys.revoke(made.id)).state == "revoked"
