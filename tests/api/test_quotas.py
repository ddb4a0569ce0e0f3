"""HOLDFAST_MAX_TOTAL_BYTES and HOLDFAST_PROBE_AUTH."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from app.kernel.enqueue import bounds as room
from tests.api.dialect import Body, Topic, eventually, refused
from tests.api.keyring import Services, client

if TYPE_CHECKING:
    from tests.api.conftest import Serve

MOST = 10_000


@pytest.fixture
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("kind", ["queue", "log"])
async def test_what_does_not_fit_into_all_that_may_be_held_is_throttled(
    services: Services, kind: str, key: str | None
) -> None:
    """Whatever topic it is for; and what is done and deleted makes room."""
    service = await services.start(max_total_bytes=MOST)
    async with client(service) as http:
        other, topic = Topic(http, "other"), Topic(http, "topic")
        await other.put(type="log")
        await other.append({"data": "x" * 3_998})
        await topic.put(type=kind)
        await topic.append({"data": "x" * 3_998})
        body: Body = {"records": [{"data": "y" * 2_998}]} | ({} if key is None else {"idempotency_key": key})
        answer = await http.post(topic.path, json=body)
        assert refused(answer, 429, "throttled")["detail"] == {"limit": "max_total_bytes", "max": MOST}
        assert answer.headers["retry-after"] == "1"
        assert (await topic.state())["count"] == 1
        await topic.append({"data": "z" * 98})
        assert (await other.post("delete", before_seq=2))["deleted"] == 1

        async def fits() -> bool:
            return (await http.post(topic.path, json=body)).is_success

        await eventually(fits)
        if kind == "queue":
            jobs = (await topic.claim(max=10))["claimed"]
            await topic.ack("n", [job["$seq"] for job in jobs])
            await eventually(lambda: empty(http, topic))


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("path", ["/api/messages", "/api/messages/batch"])
async def test_the_quota_holds_for_messages_too(services: Services, path: str, key: str | None) -> None:
    service = await services.start(max_total_bytes=MOST)
    async with client(service) as http:
        message = {"payload": "x" * 4_000} | ({} if key is None else {"key": key})
        body: Body = {"topic": "t"} | ({"messages": [message]} if path.endswith("batch") else message)
        assert [(await http.post(path, json=body)).status_code for _ in range(2)] == [201, 201]
        answer = await http.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (429, "throttled")


async def test_the_quota_holds_for_a_replay_which_goes_on_once_there_is_room(services: Services) -> None:
    service = await services.start(max_total_bytes=MOST)
    async with client(service) as http:
        assert (await http.put("/api/topic-configs/t", json={"replayable": True})).is_success

        async def put() -> bool:
            return (await http.post("/api/messages", json={"topic": "t", "payload": "x" * 4_000})).is_success

        async def two_taken() -> list[str]:
            for _ in range(2):
                await eventually(put)
            taken = await http.post("/api/messages/dequeue", json={"topic": "t", "count": 2})
            return [message["id"] for message in taken.json()["messages"]]

        async def ack(messages: list[str]) -> None:
            for message in messages:
                assert (await http.post(f"/api/messages/{message}/ack")).is_success

        await ack(await two_taken())
        held = await two_taken()
        answer = await http.post("/api/topics/t/replay", json={})
        assert (answer.status_code, answer.json()["code"]) == (429, "throttled")
        await ack(held)

        async def replayed() -> Body | None:
            answer = await http.post("/api/topics/t/replay", json={})
            return answer.json() if answer.is_success else None

        done = await eventually(replayed)
        assert done is not None
        assert (done["enqueued"], done["joined"]) == (2, True)


async def empty(http: httpx.AsyncClient, topic: Topic) -> bool:
    """All of the quota is free again."""
    return (await http.post(topic.path, json={"records": [{"data": "w" * (MOST - 2)}]})).is_success


async def test_what_a_process_lets_in_counts_before_the_next_look(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "FRESH_SECONDS", 3_600)
    service = await services.start(max_total_bytes=MOST)
    async with client(service) as http:
        answers = [await http.post("/v0/topics/t", json={"records": [{"data": "x" * 2_998}]}) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 429, 429]


@pytest.mark.parametrize("path", ["/healthz", "/v0/health", "/readyz", "/v0/ready"])
async def test_probes_need_a_key_where_that_is_set(serve: Serve, path: str) -> None:
    service = await serve(api_keys="weak:read:nothing.", probe_auth=True)
    async with client(service) as http:
        refused(await http.get(path), 401, "unauthorized")
    async with client(service, "wrong") as http:
        refused(await http.get(path), 401, "unauthorized")
    async with client(service, "weak") as http:
        assert (await http.get(path)).status_code == 200
    await service.stop()


async def test_where_there_is_no_key_probes_need_none(services: Services) -> None:
    service = await services.start(probe_auth=True)
    async with client(service) as http:
        assert (await http.get("/healthz")).status_code == 200
