"""Each page beside many jobs comes, and says what it was asked for. How long each takes: make pages."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import httpx
import pytest

from tests.api.conftest import Serve
from tools.pages.depth import COME_AFTER, DEEP, GONE, MOVES, PAGES, fill


@pytest.mark.parametrize("jobs", [4_000, pytest.param(200_000, marks=pytest.mark.slow)])
async def test_each_page_beside_many_jobs(serve: Serve, new_database: Callable[[], Awaitable[str]], jobs: int) -> None:
    dsn = await new_database()
    service = await serve(database_url=dsn)
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
        await fill(http, dsn, jobs)
        for name, path in PAGES.items():
            answer = await http.get(f"/admin{path}")
            assert answer.status_code == 200, (name, answer.text)
            assert "empty failed" not in answer.text, (name, "it took too long to read")
        for name, path in COME_AFTER.items():
            assert (await http.get(f"/admin{path}", headers=MOVES)).status_code == 200, name
        # What each dead letter was at an instant is not asked for one by one.
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        page = (await http.get(f"/admin/topics/{DEEP}/asof", params={"at": at})).text
    (row,) = re.findall(r"<tr>(?:(?!</tr>).)*Dead letters.*?</tr>", page, re.DOTALL)
    assert f"{jobs // 10 + GONE:,}" in row
