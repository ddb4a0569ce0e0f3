"""delay_seconds and run_at: when a message may be had first, as the messages dialect says it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import httpx
import pytest

from tests.api.dialect import eventually
from tests.api.messages.client import Body, Messages, refused

TEN_YEARS = 315_360_000


def stamp(seconds: float, hours: int = 0) -> str:
    zone = timezone(timedelta(hours=hours))
    return (datetime.now(UTC) + timedelta(seconds=seconds)).astimezone(zone).isoformat()


@pytest.mark.parametrize("later", [lambda: {"delay_seconds": 0.6}, lambda: {"run_at": stamp(0.6, hours=-11)}])
async def test_a_message_comes_when_its_time_has_come(messages: Messages, later: object) -> None:
    began = time.monotonic()
    fields: Body = later()  # type: ignore[operator]
    message_id = await messages.put("later", **fields)
    assert await messages.dequeue(9) == []

    async def taken() -> list[Body]:
        return await messages.dequeue(9)

    assert [one["id"] for one in await eventually(taken)] == [message_id]
    assert time.monotonic() - began >= 0.55


async def test_a_time_that_is_past_is_now_and_of_two_the_later_counts(messages: Messages) -> None:
    await messages.batch(
        {"payload": "past", "run_at": stamp(-3600)},
        {"payload": "none", "delay_seconds": 0},
        {"payload": "delayed", "run_at": stamp(-5), "delay_seconds": 3600},
        {"payload": "timed", "run_at": stamp(3600), "delay_seconds": 0.001},
        {"payload": "far", "delay_seconds": TEN_YEARS},
    )
    assert [one["payload"] for one in await messages.dequeue(9)] == ["past", "none"]


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_seconds": -0.001},
        {"delay_seconds": TEN_YEARS + 1},
        {"delay_seconds": "5"},
        {"run_at": ""},
        {"run_at": 5},
        {"run_at": "2026-02-30T09:00:00Z"},
        {"run_at": "9999-12-31T23:59:59-23:00"},
    ],
)
async def test_what_is_no_time_is_refused(http: httpx.AsyncClient, messages: Messages, fields: Body) -> None:
    body = {"topic": messages.topic, "payload": "x", **fields}
    refused(await http.post("/api/messages", json=body), 400, "invalid_request")
