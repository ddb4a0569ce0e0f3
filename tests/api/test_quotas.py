"""HOLDFAST_MAX_TOTAL_BYTES and HOLDFAST_PROBE_AUTH."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

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


@pytest.mark.parametrize("kind", ["queue", "log"])
async def test_what_does_not_fit_into_all_that_may_be_held_is_throttled(services: Services, kind: str) -> None:
    """Whatever topic it is for; and what is done and deleted makes room."""
    service = await services.start(max_total_bytes=MOST)
    async with client(service) as http:
        other, topic = Topic(http, "other"), Topic(http, "topic")
        await other.put(type="log")
        await other.append({"data": "x" * 3_998})
        await topic.put(type=kind)
        await topic.append({"data": "x" * 3_998})
        body: Body = {"records": [{"data": "y" * 2_998}]}
        for more in ({}, {"idempotency_key": "k"}):
            answer = await http.post(topic.path, json=body | more)
            assert refused(answer, 429, "throttled")["detail"] == {"limit": "max_total_bytes", "max": MOST}
            assert answer.headers["retry-after"] == "1"
        assert (await topic.state())["count"] == 1
        if kind == "queue":
            large = {"payload": "x" * 3_000}
            for sent in (large, large | {"key": "k"}, {"messages": [large]}):
                path = "/api/messages/batch" if "messages" in sent else "/api/messages"
                late = await http.post(path, json={"topic": topic.name, **sent})
                assert (late.status_code, late.json()["code"]) == (429, "throttled")
        await topic.append({"data": "z" * 98})
        assert (await other.post("delete", before_seq=2))["deleted"] == 1

        async def fits(size: int = 2_998) -> bool:
            more = body | {"records": [{"data": "y" * size}]}
            return (await http.post(topic.path, json=more)).is_success

        await eventually(fits)
        if kind == "queue":
            jobs = (await topic.claim(max=10))["claimed"]
            await topic.ack("n", [job["$seq"] for job in jobs])
            await eventually(lambda: fits(MOST - 2))  # all of it is free again


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


async def test_what_a_process_lets_in_counts_before_the_next_look(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "FRESH_SECONDS", 3_600)
    service = await services.start(max_total_bytes=MOST)
    async with client(service) as http:
        answers = [await http.post("/v0/topics/t", json={"records": [{"data": "x" * 2_998}]}) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 429, 429]


async def test_probes_need_a_key_where_that_is_set_and_there_is_one(serve: Serve) -> None:
    service = await serve(api_keys="weak:read:nothing.", probe_auth=True)
    for path in ("/healthz", "/v0/health", "/readyz", "/v0/ready"):
        for key in ("", "wrong"):
            async with client(service, key) as http:
                refused(await http.get(path), 401, "unauthorized")
        async with client(service, "weak") as http:
            assert (await http.get(path)).status_code == 200
    await service.stop()
    open_to_all = await serve(probe_auth=True)
    async with client(open_to_all) as http:
        assert (await http.get("/healthz")).status_code == 200
