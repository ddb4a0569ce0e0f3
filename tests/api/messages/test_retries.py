"""Retries over the messages dialect: backoff, fail, refunds, and messages that kill their workers."""

from __future__ import annotations

import httpx
import pytest

from tests.api.configs import Configs
from tests.api.dialect import Body, eventually
from tests.api.messages.client import Messages, done, refused

SHORT = 0.1  # seconds of a visibility timeout, the shortest


async def crash(messages: Messages) -> Body:
    """A worker takes a message and is never heard of again; the message as it was handed out."""
    (taken,) = await messages.dequeue(visibility_timeout_seconds=SHORT, wait_seconds=15)
    return taken


def told(message: Body) -> tuple[int, int, int, bool]:
    """retry_count, crashes, failures, and whether the message is suspected."""
    assert 0 not in {message.get("crashes"), message.get("failures")}
    counts = message["retry_count"], message.get("crashes", 0), message.get("failures", 0)
    return *counts, message.get("suspected_poison", False)


@pytest.fixture
async def patient(http: httpx.AsyncClient, messages: Messages) -> Messages:
    """A topic that gives its messages nine deliveries."""
    await Configs(http, messages.topic).put(max_retries=9, dlq_threshold=9)
    return messages


async def test_a_suspected_message_is_shown_as_such(patient: Messages) -> None:
    good, bad = await patient.put("good"), await patient.put("bad")
    assert (await patient.take())["id"] == good
    for expected in ((0, 0, 0, False), (1, 1, 0, False)):
        assert told(await crash(patient)) == expected

    async def is_over() -> bool:
        return bool((await patient.get(bad))["status"] == "pending")

    await eventually(is_over)
    assert told(await patient.get(bad)) == (2, 2, 0, True), "before anybody claims it"
    assert (await patient.page(suspected_poison="true"))["total"] == 1
    taken = await patient.take()
    assert (taken["id"], told(taken)) == (bad, (2, 2, 0, True))
    assert told(await patient.get(bad)) == (2, 2, 0, True)
    await patient.nack(bad)
    assert told(await patient.get(bad)) == (3, 2, 1, True)
    found = await patient.page(suspected_poison="true")
    assert ([item["id"] for item in found["items"]], found["total"]) == ([bad], 1)
    assert [item["id"] for item in (await patient.page(suspected_poison="true", status="pending"))["items"]] == [bad]
    assert (await patient.page(suspected_poison="true", status="processing"))["items"] == []
    assert (await patient.page(suspected_poison="false"))["total"] == 2


async def test_a_dead_letter_keeps_what_it_was_suspected_of(http: httpx.AsyncClient, messages: Messages) -> None:
    await Configs(http, messages.topic).put(max_retries=2, dlq_threshold=2)
    one = await messages.put()
    await crash(messages)
    await crash(messages)
    assert await messages.dequeue(wait_seconds=1) == []
    letter = await messages.get(one)
    assert (letter["topic"], letter["original_crashes"]) == (f"{messages.topic}.dlq", 2)
    assert told(letter) == (0, 0, 0, True)
    letters = messages.of(f"{messages.topic}.dlq")
    assert [item["id"] for item in (await letters.page(suspected_poison="true"))["items"]] == [one]
    (taken,) = await letters.dequeue()
    assert (taken["original_crashes"], taken["suspected_poison"]) == (2, True)
    await letters.nack(one)
    done(await http.post(f"/api/messages/{one}/requeue"), 204)
    fresh = await messages.take()
    assert "original_crashes" not in fresh
    assert told(fresh) == (0, 0, 0, False)


async def test_three_refunds_and_then_it_counts(messages: Messages) -> None:
    one = await messages.put()
    for given_back in (True, True, True, False):
        assert (await messages.take())["retry_count"] == 0
        assert done(await messages.verb(one, "nack", refund=True)) == {"id": one, "refunded": given_back}
    assert (await messages.take())["retry_count"] == 1
    refused(await messages.verb(one, "nack", refund="yes"), 400, "invalid_request")


async def test_suspects_are_of_a_topic(http: httpx.AsyncClient, topic: str) -> None:
    for query in ("suspected_poison=true", f"topic={topic}&suspected_poison=yes"):
        refused(await http.get(f"/api/messages?{query}"), 400, "invalid_request")
