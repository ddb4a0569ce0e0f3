"""Whatever is sent, the answer is an error of the dialect, nothing is half done, and no memory stays behind."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api import bad_input
from tests.api.bad_input import Bad
from tests.api.dialect import Body, Topic, eventually, refused

if TYPE_CHECKING:
    from tests.conftest import Running


@pytest.mark.parametrize("bad", bad_input.ALL, ids=str)
async def test_it_is_refused_and_changes_nothing(queue: Topic, bad: Bad) -> None:
    await queue.append({"data": "held"}, {"data": "ready"})
    await queue.claim("n", max=1)
    before = await queue.state()
    error = refused(await bad.send(queue.http, queue.name), bad.status, bad.code)
    assert bad.detail.items() <= error.get("detail", {}).items()
    after = await queue.state()
    for state in (before, after):
        del state["performance"], state["effective_priority"]  # which falls with time
    assert after == before
    assert after["queue"] == {"ready": 1, "in_flight": 1, "dead_lettered": 0}


@pytest.mark.parametrize(
    ("query", "accept", "status", "code"),
    [
        ("", None, 400, "invalid_request"),
        ("node=", None, 400, "invalid_request"),
        ("node=a%00b", None, 400, "invalid_request"),
        (f"node={'x' * 129}", None, 400, "invalid_request"),
        ("node=n&max=x", None, 400, "invalid_request"),
        ("node=n&max=-1", None, 400, "invalid_request"),
        ("node=n&max=1.5", None, 400, "invalid_request"),
        ("node=n&max=", None, 400, "invalid_request"),
        ("node=n&max=%D9%A3", None, 400, "invalid_request"),
        (f"node=n&max={'9' * 5000}", None, 400, "invalid_request"),
        ("node=n&lease_ms=x", None, 400, "invalid_request"),
        ("node=n&lease_ms=-5", None, 400, "invalid_request"),
        ("node=n", "application/json", 406, "not_acceptable"),
        ("node=n", "text/html, application/xml;q=0.9", 406, "not_acceptable"),
    ],
)
async def test_a_stream_is_asked_for_sensibly(
    queue: Topic, query: str, accept: str | None, status: int, code: str
) -> None:
    await queue.add(1)
    headers = {} if accept is None else {"accept": accept}
    refused(await queue.http.get(f"{queue.path}/work?{query}", headers=headers), status, code)
    assert await queue.counts() == (1, 0)


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"]
)
async def test_json_is_json_whatever_its_parameters(queue: Topic, content_type: str) -> None:
    answer = await queue.http.post(
        queue.path, content=b'{"records":[{"data":1}]}', headers={"content-type": content_type}
    )
    assert answer.status_code == 200


async def test_a_refused_method_says_which_are_not(http: httpx.AsyncClient, topic: str) -> None:
    answer = await http.get(f"/v0/topics/{topic}/claim")
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("verb", ["", "/claim", "/ack"])
async def test_a_client_that_leaves_within_its_body_is_no_fault_of_the_service(
    service: Running, queue: Topic, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    tasks = service._server.server_state.tasks
    url = urlsplit(service.url)
    _, writer = await asyncio.open_connection(url.hostname, url.port)
    head = f"POST {queue.path}{verb} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += "content-length: 999\r\n\r\n"
    writer.write(head.encode() + b'{"node":"n",')

    async def reading() -> bool:
        return len(tasks) == 1

    async def ended() -> bool:
        return not tasks

    await eventually(reading)
    writer.close()
    await eventually(ended)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await queue.state())["count"] == 0


async def test_text_that_looks_like_nul_is_text(queue: Topic) -> None:
    body = rb'{"records":[{"data":"\\u0000 \\\\u0000","tag":"\\u0000","meta":{"a":"\\u0000"}}]}'
    answer = await queue.http.post(queue.path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    job = await queue.take()
    assert (job["data"], job["$tag"], job["meta"]) == (r"\u0000 \\u0000", r"\u0000", {"a": r"\u0000"})


async def test_what_is_wrong_is_said_in_the_same_order_by_every_verb(http: httpx.AsyncClient, topic: str) -> None:
    """Content type, JSON, fields, topic, kind of topic."""
    log = Topic(http, topic)
    await log.put(type="log")
    absent = f"/v0/topics/{topic}.absent"
    for verb in ("claim", "ack", "nack", "fail", "extend"):
        good: Body = {"node": "n"} | ({} if verb == "claim" else {"seqs": [1]})
        if verb == "extend":
            good["lease_ms"] = 1000
        plain = {"content-type": "text/plain"}
        refused(await http.post(f"{absent}/{verb}", content=b"{", headers=plain), 415, "unsupported_media_type")
        refused(await http.post(f"{absent}/{verb}", json=good | {"node": ""}), 400, "invalid_request")
        refused(await http.post(f"{absent}/{verb}", json=good), 404, "topic_not_found")
        refused(await http.post(f"{log.path}/{verb}", json=good | {"node": 1}), 400, "invalid_request")
        refused(await http.post(f"{log.path}/{verb}", json=good), 409, "not_a_queue")
