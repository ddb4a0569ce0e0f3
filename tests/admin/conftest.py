"""A browser, and two services to look at: one that holds nothing, and one with a little of everything."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, async_playwright

from tests.admin.browser import chromium, signed_in, visitor
from tests.api import minutes
from tests.api.dialect import Topic
from tests.api.keyring import Services, bearer, client
from tests.api.people import add_user
from tests.conftest import Running

if TYPE_CHECKING:
    from tests.api.conftest import Serve

HOSTILE = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"
BOSS, READER = "boss", "reader"


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = chromium()
    if path is None and os.environ.get("HOLDFAST_TEST_ALLOW_MISSING"):
        pytest.skip("Chromium is not installed")
    assert path is not None, "Chromium is not installed: ./test says how, or leaves it out by --allow-missing"
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=path, args=["--disable-dev-shm-usage"])
        yield opened
        await opened.close()


@pytest.fixture(scope="session")
def axe() -> Axe:
    return Axe()


@pytest.fixture(scope="module")
async def empty(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service that holds nothing, where nobody has to sign in."""
    return await (await Services.make(serve, new_database)).start()


@pytest.fixture(scope="module")
async def small(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service with some topics, some of which are not well, and users: an admin and one who reads."""
    service = await (await Services.make(serve, new_database)).start(
        api_keys="root", bcrypt_cost=10, trusted_proxies="127.0.0.0/8"
    )
    async with client(service, "root") as http:
        await add_user(http, name=BOSS, is_admin=True)
        await add_user(http, "read mail.*", name=READER)
        await fill(http)
    await minutes.tell(service.context.pools)
    await minutes.look(service.context.pools)
    return service


@pytest.fixture(scope="module")
async def boss(browser: Browser, small: Running) -> AsyncIterator[BrowserContext]:
    """A viewer who has signed in as the admin."""
    async with signed_in(browser, small, BOSS) as context:
        yield context


@pytest.fixture
async def guest(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A viewer who has not."""
    async with visitor(browser) as context:
        yield context


async def fill(http: httpx.AsyncClient) -> None:
    """Jobs in every state, errors that say hostile things, a paused topic and a log."""
    orders = Topic(http, "orders")
    await orders.put(max_deliveries=1, on_exhausted="dead_letter", dead_letter="dead.letters")
    await Topic(http, "dead.letters").put()
    await orders.append(*({"data": n} for n in range(9)), {"data": 9, "delay_ms": 3_600_000})
    await orders.append({"data": 10, "group": "g"}, {"data": 11, "group": "g"})
    claimed = [job["$seq"] for job in (await orders.claim(max=6))["claimed"]]
    await orders.ack("n", claimed[:2])
    await orders.nack("n", claimed[2:4], errors=[HOSTILE, "ValueError: no address"])
    mail = Topic(http, "mail.outbound")
    await mail.put()
    await mail.add(12)
    (await http.post(f"{mail.path}/pause", headers=bearer("root"))).raise_for_status()
    await Topic(http, "events").put(type="log")
    await Topic(http, "events").append({"data": 1}, {"data": 2})
    for n in range(60):  # more than a page of the list
        await Topic(http, f"many.{n:02}").put()
