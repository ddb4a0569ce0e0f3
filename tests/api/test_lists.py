"""The list of topics, a page at a time."""

from __future__ import annotations

import base64
import json

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused


async def test_the_list_comes_in_pages_by_name(http: httpx.AsyncClient, topic: str) -> None:
    names = [f"{topic}.{letter}" for letter in ("B", "a", "a-", "a:", "b")]  # in byte order
    for name in reversed(names):
        await Topic(http, name).put(durable=True, priority=7)
    await Topic(http, names[0]).add(3)
    pages: list[list[Body]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = accepted(await http.get("/v0/topics", params={"prefix": f"{topic}.", "page_size": 2, "cursor": cursor}))
        pages.append(page["topics"])
        cursor = page.get("next_cursor")
    assert [[item["topic"] for item in page] for page in pages] == [names[:2], names[2:4], names[4:]]
    assert pages[0][0] == {
        "topic": f"{topic}.B",
        "head_seq": 3,
        "earliest_seq": 1,
        "count": 3,
        "bytes": 3,
        "durable": True,
        "effective_priority": 7,
    }
    # The size of a page is clamped, and the cursor of the original is read.
    for size in ("0", "-5", "1001", "9" * 20):
        page = accepted(await http.get("/v0/topics", params={"prefix": f"{topic}.", "page_size": size}))
        assert len(page["topics"]) == (1 if int(size) < 1 else 5)
    original = base64.b64encode(json.dumps({"after": names[3]}).encode()).decode()
    page = accepted(await http.get("/v0/topics", params={"prefix": f"{topic}.", "cursor": original}))
    assert [item["topic"] for item in page["topics"]] == [f"{topic}.b"]
    for prefix in ("ü", "'", "%", "~"):
        assert accepted(await http.get("/v0/topics", params={"prefix": prefix}))["topics"] == []


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


@pytest.mark.parametrize(
    "params",
    [{"prefix": "a\0"}, *({"cursor": cursor} for cursor in CORRUPT.values())],
    ids=["prefix", *CORRUPT],
)
async def test_a_list_is_asked_for_sensibly(http: httpx.AsyncClient, params: dict[str, str]) -> None:
    refused(await http.get("/v0/topics", params=params), 400, "invalid_request")
