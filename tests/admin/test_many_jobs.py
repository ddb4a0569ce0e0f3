"""Each page beside 200,000 jobs: it comes in time, and the browser has nothing to complain of."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import httpx
import pytest
from playwright.async_api import Browser, expect

from tests.admin.browser import tab, visitor
from tests.admin.depth import DEEP, GONE, PAGES, fill
from tests.api.conftest import Serve
from tests.conftest import Running

JOBS = 200_000
PATIENCE_SECONDS = 20.0  # of a page, on a machine that stalls; how long they take on one that doesn't: make pages


@pytest.fixture(scope="module")
async def many(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    dsn = await new_database()
    service = await serve(database_url=dsn)
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
        await fill(http, dsn, JOBS)
    return service


async def test_each_page_beside_many_jobs(browser: Browser, many: Running) -> None:
    """One test: they share what takes longest, the jobs."""
    async with visitor(browser, proxied=False) as context, tab(context, many.url) as one:
        for name, path in PAGES.items():
            began = time.monotonic()
            assert await one.open(f"/admin{path}") == 200, (name, await one.text())
            assert time.monotonic() - began < PATIENCE_SECONDS, name
            assert await one.page.locator(".empty.failed").count() == 0, (name, await one.text())
            assert await one.faults() == []
        # What each dead letter was at an instant is not asked for one by one.
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        await one.open(f"/admin/topics/{DEEP}/asof?at={at}")
        row = one.page.locator("tbody tr", has_text="Dead letters")
        await expect(row).to_contain_text(f"{JOBS // 10 + GONE:,}")
