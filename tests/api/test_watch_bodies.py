"""What a client asks of a watch: defaults, bounds and refusals."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import JSON, Body, Topic, refused
from tests.api.watches import made, watching

if TYPE_CHECKING:
    from tests.queue.calls import Session


@pytest.fixture
async def log(http: httpx.AsyncClient, topic: str) -> Topic:
    """A log with every default."""
    log = Topic(http, topic)
    await log.put(type="log")
    return log


async def test_a_watch_has_its_defaults(log: Topic) -> None:
    await log.append(*({"data": i, "tag": "t", "meta": {"m": i}} for i in range(300)))
    for limit in ({}, {"limit": 0}):
        async with watching(log.http, await made(log.http, log, **limit)) as stream:
            first, second = [(await stream.event("record")).data["records"] for _ in range(2)]
            assert (len(first), len(second)) == (256, 44)
            assert set(first[0]) == {"$seq", "$ts", "data", "meta"}
    await log.post("delete", before_seq=301)
    await log.append(*({"data": "x" * 130_000} for _ in range(3)))
    for most in ({}, {"max_batch_bytes": 0}):
        async with watching(log.http, await made(log.http, log, **most)) as stream:
            assert [len((await stream.event("record")).data["records"]) for _ in range(2)] == [2, 1]


@pytest.mark.parametrize(
    ("asked", "kept"),
    [(None, 15_000), (0, 1_000), (999, 1_000), (1_001, 1_001), (60_000, 60_000), (60_001, 60_000)],
)
async def test_how_often_a_watch_beats_is_clamped(
    log: Topic, connect: Callable[[], Awaitable[Session]], asked: int | None, kept: int
) -> None:
    watch = await made(log.http, log, heartbeat_ms=asked)
    db = await connect()
    options = await db.fetchval("SELECT options FROM holdfast.watches WHERE wid = $1", watch["wid"])
    assert json.loads(options)["heartbeat_ms"] == kept


async def test_what_a_watch_asks_of_consistency_changes_nothing(log: Topic) -> None:
    await log.append({"data": 1})
    for asked in ("eventual", "strong"):
        async with watching(log.http, await made(log.http, log, consistency=asked)) as stream:
            assert await stream.records(1) == [1]
    body = {"topics": {log.name: {}}, "consistency": "weak"}
    refused(await log.http.post("/v0/watch", json=body), 400, "invalid_request")


async def test_a_watch_may_have_so_many_topics(log: Topic) -> None:
    topics: Body = {f"{log.name}.{i}": {} for i in range(255)} | {log.name: {}}
    answer = await log.http.post("/v0/watch?lenient=true", json={"topics": topics})
    assert answer.status_code == 200
    assert list(answer.json()["topics"]) == [log.name]


async def test_a_watch_is_asked_for_in_json(http: httpx.AsyncClient) -> None:
    plain = {"content-type": "text/plain"}
    refused(await http.post("/v0/watch", content=b"{", headers=plain), 415, "unsupported_media_type")
    for content in (b"", b"{", b"{}"):
        refused(await http.post("/v0/watch", content=content, headers=JSON), 400, "invalid_request")
