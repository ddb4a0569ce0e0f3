"""The list of topics, a page at a time."""

from __future__ import annotations

import base64
import json

import httpx
import pytest

from tests.api.dialect import Topic, accepted, refused


async def test_the_list_comes_in_pages_by_name(http: httpx.AsyncClient, topic: str) -> None:
    names = [f"{topic}.{letter}" for letter in ("B", "a", "a-", "a:", "b")]  # in byte order
    for name in reversed(names):
        await Topic(http, name).put(durable=True, priority=7)
    await Topic(http, names[0]).add(3)
    seen, cursor, pages = [], "", []
    while True:
        params: dict[str, str | int] = {"prefix": f"{topic}.", "page_size": 2, "cursor": cursor}
        page = accepted(await http.get("/v0/topics", params=params))
        pages.append(len(page["topics"]))
        seen += page["topics"]
        if "next_cursor" not in page:
            break
        cursor = page["next_cursor"]
    assert pages == [2, 2, 1]
    assert [item["topic"] for item in seen] == sorted(names, key=str.encode)
    assert seen[0] == {
        "topic": f"{topic}.B",
        "head_seq": 3,
        "earliest_seq": 1,
        "count": 3,
        "bytes": 3,
        "durable": True,
        "effective_priority": 7,
    }


async def test_the_cursor_of_the_original_is_read(http: httpx.AsyncClient, topic: str) -> None:
    for letter in "ab":
        await Topic(http, f"{topic}{letter}").put()
    cursor = base64.b64encode(json.dumps({"after": f"{topic}a"}).encode()).decode()
    page = accepted(await http.get("/v0/topics", params={"prefix": topic, "cursor": cursor}))
    assert [item["topic"] for item in page["topics"]] == [f"{topic}b"]


@pytest.mark.parametrize("size", ["0", "-5", "1001", "99999999999999999999"])
async def test_the_size_of_a_page_is_clamped(http: httpx.AsyncClient, topic: str, size: str) -> None:
    for letter in "ab":
        await Topic(http, f"{topic}{letter}").put()
    page = accepted(await http.get("/v0/topics", params={"prefix": topic, "page_size": size}))
    assert len(page["topics"]) == (1 if int(size) < 1 else 2)


CORRUPT = {
    "not base64": "!!!",
    "cut": base64.b64encode(b'{"after":"abc"}').decode()[:-5],
    "not JSON": base64.b64encode(b"after").decode(),
    "not an object": base64.b64encode(b'["after"]').decode(),
    "no name": base64.b64encode(b"{}").decode(),
    "a number": base64.b64encode(b'{"after":5}').decode(),
    "not UTF-8": base64.b64encode(b'{"after":"\xff"}').decode(),
    "NUL": base64.b64encode(b'{"after":"a\\u0000"}').decode(),
    "lone surrogate": base64.b64encode(b'{"after":"\\ud800"}').decode(),
    "unicode": "äöü",
}


@pytest.mark.parametrize("cursor", CORRUPT.values(), ids=CORRUPT)
async def test_a_corrupt_cursor_is_refused(http: httpx.AsyncClient, cursor: str) -> None:
    refused(await http.get("/v0/topics", params={"cursor": cursor}), 400, "invalid_request")


@pytest.mark.parametrize("params", [{"page_size": "x"}, {"page_size": ""}, {"page_size": "1.5"}, {"prefix": "a\0"}])
async def test_a_list_is_asked_for_sensibly(http: httpx.AsyncClient, params: dict[str, str]) -> None:
    refused(await http.get("/v0/topics", params=params), 400, "invalid_request")


async def test_a_prefix_that_no_topic_has_lists_none(http: httpx.AsyncClient) -> None:
    for prefix in ("ü", "'", "%", "~"):
        assert accepted(await http.get("/v0/topics", params={"prefix": prefix}))["topics"] == []
