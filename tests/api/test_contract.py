"""Small rules that a client of the original server counts on and no other test holds."""

from __future__ import annotations

import gzip

import httpx
import pytest

from tests.api.dialect import JSON, Topic, accepted, refused


@pytest.mark.parametrize(("asked", "counts"), [(7, 7), (5_000, 1_000), (-5_000, -1_000)])
async def test_a_topics_priority_is_clamped_when_it_is_read(queue: Topic, asked: int, counts: int) -> None:
    await queue.put(priority=asked)
    assert (await queue.state())["effective_priority"] == counts
    page = accepted(await queue.http.get(f"/v0/topics?prefix={queue.name}"))
    assert page["topics"][0]["effective_priority"] == counts


@pytest.mark.parametrize("body", [gzip.compress(b'{"node": "n"}'), b"{}"], ids=["gzip", "as gzip"])
async def test_a_compressed_body_is_refused_as_one(queue: Topic, body: bytes) -> None:
    for path in (f"{queue.path}/claim", f"/in/{queue.name}"):
        answer = await queue.http.post(path, content=body, headers=JSON | {"content-encoding": "gzip"})
        assert "compressed (content-encoding: gzip)" in refused(answer, 415, "unsupported_media_type")["message"]
    plain = await queue.http.post(f"{queue.path}/claim", json={"node": "n"}, headers={"content-encoding": "identity"})
    assert accepted(plain)["count"] == 0


async def test_another_host_name_is_told_what_to_set(queue: Topic) -> None:
    error = refused(await queue.http.get(queue.path, headers={"host": "queue.internal"}), 403, "forbidden")
    assert "'queue.internal'" in error["message"]
    assert "HOLDFAST_API_KEYS" in error["message"]


@pytest.mark.parametrize(("method", "path"), [("GET", "/v0/routers"), ("PUT", "/v0/routers/a>b")])
async def test_there_are_no_routers_and_the_answer_says_so(http: httpx.AsyncClient, method: str, path: str) -> None:
    assert "no routers" in refused(await http.request(method, path, json={}), 404, "not_found")["message"]


async def test_what_the_original_takes_and_we_have_no_use_for_is_taken(queue: Topic) -> None:
    await queue.append({"data": 1}, node="n", disable_backpressure=True)
    accepted(await queue.http.get(f"{queue.path}?touch=true"))
    assert (await queue.take("n"))["$seq"] == 1, "who produced a job may claim it"


@pytest.mark.parametrize("value", ["1", "", "True", "no", "null"])
async def test_a_parameter_is_true_or_false(queue: Topic, value: str) -> None:
    """?if_empty=1 must not delete what is not empty."""
    await queue.add(1)
    for method, path, name in (
        ("DELETE", queue.path, "if_empty"),
        ("GET", queue.path, "touch"),
        ("GET", "/v0/topics", "touch"),
        ("POST", queue.path, "return_seqs"),
    ):
        body = {"records": [{"data": 2}]} if method == "POST" else None
        refused(await queue.http.request(method, f"{path}?{name}={value}", json=body), 400, "invalid_request")
    assert (await queue.state())["count"] == 1


async def test_the_size_of_a_page_is_a_whole_number(http: httpx.AsyncClient) -> None:
    for size in ("1_000", "+1", " 1", "1.0", "٣", "", "1" * 5_000):
        refused(await http.get("/v0/topics", params={"page_size": size}), 400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v0/topics/t", "DELETE, GET, POST, PUT"),
        ("/v0/keys/k", "DELETE, GET"),
        ("/v0/topics/t/claim", "POST"),
        ("/api/version", "GET"),
    ],
)
async def test_a_refused_method_is_told_every_other(http: httpx.AsyncClient, path: str, methods: str) -> None:
    answer = await http.request("PATCH", path)
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == methods


async def test_an_idempotency_key_is_looked_at_wherever_it_stands(queue: Topic) -> None:
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    for key in ("", "x" * 257):
        answer = await queue.http.post(queue.path, json=body, headers={"idempotency-key": key})
        refused(answer, 400, "invalid_request")
    assert (await queue.state())["count"] == 0


async def test_nothing_may_be_settled_at_all(queue: Topic) -> None:
    await queue.add(1)
    job = await queue.take()
    assert (await queue.ack("n", []))["acked"] == 0
    assert (await queue.nack("n", [], lease_ids=[]))["nacked"] == 0
    assert (await queue.extend("n", [], 60_000))["deadlines"] == {}
    assert (await queue.ack("n", [job["$seq"]]))["acked"] == 1


async def test_a_fault_of_the_service_is_told_as_one_and_no_more(queue: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("what only the log is to say")

    monkeypatch.setattr("app.features.topics.v0.store.get", broken)
    answer = await queue.http.get(queue.path)
    refused(answer, 500, "internal")
    assert "only the log" not in answer.text
    monkeypatch.undo()
    await queue.state()
