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
from tests.api.dialect import JSON, Body, Topic, eventually, refused

if TYPE_CHECKING:
    from tests.conftest import Running


async def refuses(topic: Topic, *group: Bad) -> None:
    """Each is refused as it says, and nothing of the topic changes."""
    before = await topic.state()
    for bad in group:
        answer = await bad.send(topic.http, topic.name)
        assert answer.status_code == bad.status, f"{bad.name}: {answer.text[:500]}"
        error = refused(answer, bad.status, bad.code)
        assert bad.detail.items() <= error.get("detail", {}).items(), bad.name
    after = await topic.state()
    for state in (before, after):
        del state["performance"], state["effective_priority"]  # which falls with time
    assert after == before


@pytest.mark.parametrize("group", bad_input.GROUPS)
async def test_it_is_refused_and_changes_nothing(queue: Topic, group: str) -> None:
    await queue.append({"data": "held"}, {"data": "ready"})
    await queue.claim("n", max=1, lease_ms=3_600_000)
    await refuses(queue, *bad_input.GROUPS[group])


async def test_a_logs_records_are_refused_alike(http: httpx.AsyncClient, topic: str) -> None:
    """But for times, which only jobs have."""
    log = Topic(http, topic)
    await log.put(type="log")
    records = [bad for bad in bad_input.RECORDS if not bad.name.startswith(("run_at", "delay", "time"))]
    await refuses(log, *records, *bad_input.BATCHES)


@pytest.mark.parametrize(
    "query",
    [
        *("", "node=", "node=a%00b", f"node={'x' * 129}", "node=n&max=x", "node=n&max=-1", "node=n&max=1.5"),
        *("node=n&max=", "node=n&max=%D9%A3", f"node=n&max={'9' * 5000}", "node=n&lease_ms=x", "node=n&lease_ms=-5"),
    ],
)
async def test_a_stream_is_asked_for_sensibly(queue: Topic, query: str) -> None:
    await queue.add(1)
    refused(await queue.http.get(f"{queue.path}/work?{query}"), 400, "invalid_request")
    for accept in ("application/json", "text/html, application/xml;q=0.9"):  # which is looked at first
        answer = await queue.http.get(f"{queue.path}/work?{query}", headers={"accept": accept})
        refused(answer, 406, "not_acceptable")
    assert await queue.counts() == (1, 0)


async def test_json_is_json_whatever_its_parameters(queue: Topic) -> None:
    body = rb'{"records":[{"data":"\\u0000 \\\\u0000","tag":"\\u0000","meta":{"a":"\\u0000"}}]}'
    for kind in ("application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"):
        answer = await queue.http.post(queue.path, content=body, headers={"content-type": kind})
        assert answer.status_code == 200
        job = await queue.take()  # text that looks like NUL is text
        assert (job["data"], job["$tag"], job["meta"]) == (r"\u0000 \\u0000", r"\u0000", {"a": r"\u0000"})


@pytest.mark.parametrize("verb", ["", "/claim", "/ack"])
async def test_a_client_that_leaves_within_its_body_is_no_fault_of_the_service(
    service: Running, queue: Topic, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    tasks = service._server.server_state.tasks
    url = urlsplit(service.url)
    _, writer = await asyncio.open_connection(url.hostname, url.port)
    head = f"POST {queue.path}{verb} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f'{head}content-length: 999\r\n\r\n{{"node":"n",'.encode())

    async def reading() -> bool:
        return len(tasks) == 1

    async def ended() -> bool:
        return not tasks

    await eventually(reading)
    writer.close()
    await eventually(ended)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await queue.state())["count"] == 0


async def test_what_is_wrong_is_said_in_the_same_order_by_every_verb(http: httpx.AsyncClient, topic: str) -> None:
    """Content type, JSON, fields, topic, kind of topic."""
    log = Topic(http, f"{topic}.log")
    await log.put(type="log")
    settles: Body = {"node": "n", "seqs": [1]}
    many: Body = {"seqs": list(range(1_001))}
    cases: list[tuple[str, Body, list[tuple[Body, str]]]] = [
        ("/claim", {"node": "n"}, [({"node": ""}, "invalid_request")]),
        ("", {"records": [{"data": 1}], "create": False}, [({"records": [{"tag": "x"}]}, "invalid_request")]),
        ("/diff", {}, [({"limit": -1}, "invalid_request")]),
        ("/delete", {"before_seq": 1}, [({"before_seq": None}, "invalid_request")]),
    ]
    for verb in ("ack", "nack", "fail", "extend"):
        # Lease ids that are none, no node, too many seqs, and lease ids that don't fit.
        faults: list[tuple[Body, str]] = [
            (many | {"node": "", "lease_ids": ["x"]}, "invalid_request"),
            (many | {"node": ""}, "invalid_request"),
            (many | {"lease_ids": ["lease_1a"]}, "batch_too_large"),
            ({"seqs": [1, 2], "lease_ids": ["lease_1a"]}, "invalid_request"),
        ]
        cases.append((f"/{verb}", settles | ({"lease_ms": 1_000} if verb == "extend" else {}), faults))
    for verb, good, wrong in cases:
        absent = f"/v0/topics/{topic}{verb}"
        plain = await http.post(absent, content=b"{", headers={"content-type": "text/plain"})
        refused(plain, 415, "unsupported_media_type")
        refused(await http.post(absent, content=b"{", headers=JSON), 400, "invalid_request")
        for fault, code in wrong:
            refused(await http.post(absent, json=good | fault), 400, code)
        refused(await http.post(absent, json=good), 404, "topic_not_found")
        if verb not in {"", "/diff", "/delete"}:
            refused(await http.post(f"{log.path}{verb}", json=good | {"node": 1}), 400, "invalid_request")
            error = refused(await http.post(f"{log.path}{verb}", json=good), 409, "not_a_queue")
            assert error["detail"] == {"topic": log.name}
    for path, status, code in ((f"/v0/topics/{topic}", 404, "topic_not_found"), (log.path, 409, "not_a_queue")):
        refused(await http.get(f"{path}/work?node=n&max=x"), 400, "invalid_request")
        refused(await http.get(f"{path}/work?node=n"), status, code)
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")  # which none of them has made
