"""The original's page on concepts, word for word: each of its commands is sent as it stands, and answers as printed."""

from __future__ import annotations

import json
import uuid

import httpx
import pytest

from tests.api.dialect import JSON
from tests.api.messages.client import Messages, done

DEQUEUE = '{"topic": "orders", "count": 1, "visibility_timeout_seconds": 60}'
KEYED = '{"topic": "orders", "key": "order-42", "payload": "eyJhbW91bnQiOjk5fQ=="}'
KEYED_AGAIN = '{"topic": "orders", "key": "order-42", "payload": "eyJhbW91bnQiOjEwMH0="}'
CONFIG = """{
    "max_retries": 5,
    "message_ttl_seconds": 3600,
    "max_depth": 1000,
    "throughput_limit": 100
}"""


@pytest.fixture
async def curl(http: httpx.AsyncClient) -> httpx.AsyncClient:
    """curl as far as headers go, and no topic orders yet."""
    http.headers = httpx.Headers({"user-agent": "curl/8.5.0", "accept": "*/*"})
    for name in ("orders", "orders.dlq"):
        assert (await http.delete(f"/v0/topics/{name}")).status_code == 200
    return http


async def test_the_dequeue_of_the_page(curl: httpx.AsyncClient) -> None:
    assert done(await curl.post("/api/messages/dequeue", content=DEQUEUE, headers=JSON)) == {"messages": []}
    one = await Messages(curl, "orders").put("eyJhbW91bnQiOjk5fQ==")
    (taken,) = done(await curl.post("/api/messages/dequeue", content=DEQUEUE, headers=JSON))["messages"]
    assert (taken["id"], taken["payload"]) == (one, "eyJhbW91bnQiOjk5fQ==")


async def test_the_enqueues_with_a_key(curl: httpx.AsyncClient) -> None:
    first = done(await curl.post("/api/messages", content=KEYED, headers=JSON), 201)
    assert uuid.UUID(first["id"])
    assert done(await curl.post("/api/messages", content=KEYED_AGAIN, headers=JSON), 201) == first
    (only,) = (await Messages(curl, "orders").page())["items"]
    assert only["payload"] == "eyJhbW91bnQiOjEwMH0="


async def test_the_configuration_with_credentials_that_nobody_asks_for(curl: httpx.AsyncClient) -> None:
    answer = done(await curl.put("/api/topic-configs/orders", content=CONFIG, headers=JSON, auth=("admin", "secret")))
    asked = json.loads(CONFIG)
    assert {name: answer[name] for name in asked} == asked
    one = await Messages(curl, "orders").put()
    shown = await Messages(curl, "orders").get(one)
    assert shown["max_retries"] == 5
