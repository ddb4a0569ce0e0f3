"""Names that topics can have, and cannot."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from tests.api.dialect import Topic, refused

NAMES_REFUSED = {
    "256 characters": "x" * 256,
    "300 characters": "x" * 300,
    "quote": "it's",
    "double quote": 'a"b',
    "NUL": "a\0b",
    "newline at the end": "a\n",
    "space": "a b",
    "slash": "a/b",
    "leading dot": ".a",
    "arrow": "a>b",
    "unicode": "warteschlange-ü",
    "unicode digit": "٣",
    "percent": "a%b",
    "backslash": "a\\b",
    "empty": "",
}


@pytest.mark.parametrize("name", NAMES_REFUSED.values(), ids=NAMES_REFUSED)
@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE", "POST"])
async def test_a_name_that_no_topic_can_have_is_refused(http: httpx.AsyncClient, method: str, name: str) -> None:
    body = {"POST": {"records": [{"data": 1}]}, "PUT": {"type": "queue"}}.get(method)
    path = f"/v0/topics/{quote(name, safe='')}"
    refused(await http.request(method, path, json=body), 400, "invalid_request")


@pytest.mark.parametrize("name", NAMES_REFUSED.values(), ids=NAMES_REFUSED)
@pytest.mark.parametrize("verb", ["claim", "ack", "nack", "extend", "work"])
async def test_so_it_is_by_the_verbs_of_jobs(http: httpx.AsyncClient, verb: str, name: str) -> None:
    path = f"/v0/topics/{quote(name, safe='')}/{verb}"
    if verb == "work":
        answer = await http.get(path, params={"node": "n"})
    else:
        answer = await http.post(path, json={"node": "n", "seqs": [1], "lease_ms": 1000})
    refused(answer, 400, "invalid_request")


async def test_a_slash_in_a_name_never_reaches_another_route(queue: Topic) -> None:
    """a%2Fclaim is a topic's name, and none that a topic can have; it is no claim on topic a."""
    await queue.add(1)
    path = f"/v0/topics/{queue.name}%2Fclaim"
    refused(await queue.http.post(path, json={"node": "n", "records": [{"data": 1}]}), 400, "invalid_request")
    refused(await queue.http.put(path, json={"type": "queue"}), 400, "invalid_request")
    assert await queue.counts() == (1, 0)


@pytest.mark.parametrize("name", ["x", "X.y_z:0-9", "0", "y" * 255, "a%2Eb"])
async def test_a_name_that_a_topic_can_have(http: httpx.AsyncClient, topic: str, name: str) -> None:
    name = f"{topic}.{name}"[:255] if len(name) < 255 else (topic + name)[:255]
    queue = Topic(http, name)
    await queue.put()
    await queue.add(1)
    job = await queue.take()
    assert (await queue.ack("n", [job["$seq"]]))["acked"] == 1
    assert (await queue.drop())["deleted"] is True
