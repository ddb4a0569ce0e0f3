"""A field that a call does not know is refused by its name: a misspelt one would be missed in silence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.messages.client import done
from tests.api.messages.client import refused as refused_by_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Running

IGNORED_BY_THE_ORIGINAL = {"Record", "LogRecord"}


@pytest.mark.parametrize(
    ("verb", "body", "named"),
    [
        ("fail", {"node": "n", "seqs": [1], "error": ["broken"]}, "error"),
        ("nack", {"node": "n", "seqs": [1], "delay": 5}, "delay"),
        ("ack", {"node": "n", "seqs": [1], "result": [1]}, "result"),
        ("extend", {"node": "n", "seqs": [1], "lease_ms": 100, "lease_id": "lease_1"}, "lease_id"),
        ("claim", {"node": "n", "count": 5}, "count"),
        ("diff", {"from": 7}, "from"),
        ("delete", {"before_seq": 2, "tag": "a"}, "tag"),
        ("", {"records": [{"data": 2}], "idempotence_key": "a"}, "idempotence_key"),
        ("", {"records": [{"data": 2}], "config": {"type": "queue", "lease": 5}}, "lease"),
    ],
)
async def test_a_verb_refuses_a_field_that_it_does_not_know(queue: Topic, verb: str, body: Body, named: str) -> None:
    await queue.add(1)
    await queue.take("n")
    before = await queue.state()
    error = refused(await queue.http.post(f"{queue.path}/{verb}".rstrip("/"), json=body), 400, "invalid_request")
    assert error["message"].startswith(f"Object contains unknown field `{named}`")
    assert "check its spelling, or leave it out." in error["message"]
    after = await queue.state()
    assert (after["queue"], after["head_seq"]) == (before["queue"], before["head_seq"])


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"max_delivery": 5}, "max_delivery"),
        ({"backoff": {"kind": "fixed", "base": 5}}, "base"),
        ({"webhook": {"uri": "https://example.com"}}, "uri"),
    ],
)
async def test_a_misspelt_setting_is_refused_by_its_name(
    http: httpx.AsyncClient, topic: str, setting: Body, named: str
) -> None:
    put = refused(await http.put(f"/v0/topics/{topic}", json={"type": "queue", **setting}), 400, "invalid_request")
    assert f"`{named}`" in put["message"]
    other = await http.put(f"/api/topic-configs/{topic}", json=setting)
    assert f"`{named}`" in refused_by_messages(other, 400, "invalid_request")
    assert (await http.get(f"/v0/topics/{topic}")).status_code == 404


async def test_a_configuration_that_was_read_can_be_put_back(http: httpx.AsyncClient, topic: str) -> None:
    await Topic(http, topic).put(backoff={"kind": "fixed"}, webhook={"url": "https://example.com", "secret": "x" * 8})
    config = (await Topic(http, topic).state())["config"]
    assert accepted(await http.put(f"/v0/topics/{topic}", json=config))["config"] == config
    path = f"/api/topic-configs/{topic}"
    shown = done(await http.get(path))
    assert shown["topic"] == topic
    assert done(await http.put(path, json=shown)) == shown
    answer = await http.put(path, json={"topic": f"{topic}.other"})
    assert "in the path" in refused_by_messages(answer, 400, "invalid_request")


async def test_messages_refuse_a_field_that_they_do_not_know(http: httpx.AsyncClient, topic: str) -> None:
    for path, body in (
        ("/api/messages", {"topic": topic, "payload": "x", "delay_ms": 1}),
        ("/api/messages/dequeue", {"topic": topic, "max": 5}),
        ("/api/messages/00000000-0000-0000-0000-000000000000/nack", {"errors": "x"}),
        (f"/api/topics/{topic}/purge", {"status": ["failed"]}),
    ):
        message = refused_by_messages(await http.post(path, json=body), 400, "invalid_request")
        assert f"`{list(body)[-1]}`" in message
    assert (await http.get(f"/v0/topics/{topic}")).status_code == 404


async def test_a_record_may_have_fields_of_its_own(queue: Topic) -> None:
    """A client of the original may write what it has read, `$seq` and all."""
    await queue.append({"$seq": 7, "$ts": 1, "data": 1, "extra": [1]})
    assert (await queue.take())["data"] == 1


async def test_the_description_says_so_of_every_body(service: Running, http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    parts: Body = document["components"]["schemas"]
    named = {
        name
        for item in document["paths"].values()
        for operation in item.values()
        if "requestBody" in operation
        for name in _named(operation["requestBody"], parts)
    }
    objects = {name for name in named if "properties" in parts[name]}
    assert len(objects) > 40
    assert {name for name in objects if parts[name].get("additionalProperties") is not False} == IGNORED_BY_THE_ORIGINAL


def _named(schema: Any, parts: Body) -> Iterator[str]:
    """The names of a schema's parts, and theirs."""
    text = json.dumps(schema)
    for name in parts:
        if f'"#/components/schemas/{name}"' in text:
            yield name
            yield from _named(parts[name], parts)
