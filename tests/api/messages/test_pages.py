"""Pages of messages: how much one of them has."""

from __future__ import annotations

import httpx
import pytest

from tests.api.messages.client import Messages, done


@pytest.mark.parametrize("status", [None, "pending"])
async def test_a_page_ends_early_that_has_many_bytes(
    monkeypatch: pytest.MonkeyPatch, http: httpx.AsyncClient, messages: Messages, status: str | None
) -> None:
    monkeypatch.setattr("app.kernel.jobs.PAGE_BYTES", 100)
    ids = await messages.batch(*({"payload": "x" * size} for size in (10, 500, 60, 60, 20)))
    query: dict[str, str | int] = {} if status is None else {"status": status}
    pages = [await messages.page(limit=4, **query)]
    while "next_cursor" in pages[-1]:
        assert len(pages) < 9
        pages.append(await messages.page(limit=4, cursor=pages[-1]["next_cursor"], **query))
    assert [[one["id"] for one in page["items"]] for page in pages if page["items"]] == [
        [ids[4], ids[3], ids[2]],
        [ids[1]],
        [ids[0]],
    ]
    assert {page["total"] for page in pages} == {5}
    everything = done(await http.get("/api/messages"))
    assert 0 < len(everything["items"]) < everything["total"]
