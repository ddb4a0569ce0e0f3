"""A browser, and two services to look at: one that holds nothing, and one with a little of everything."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, async_playwright
from pydantic import SecretStr

from app.settings import Settings
from tests.admin.browser import chromium
from tests.admin.operator import Operator, at_the_pages
from tests.api import minutes
from tests.api.dialect import Topic
from tests.api.keyring import client
from tests.api.people import add_user
from tests.conftest import Running

HOSTILE = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"
BOSS, READER = "boss", "reader"
HOUR = 3_600_000  # a lease that ends in no test, however slow the machine


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


@pytest.fixture(scope="package")
async def empty(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[Running]:
    """A service that holds nothing, where nobody has to sign in."""
    service = Running(Settings.model_validate({"database_url": SecretStr(await new_database())}))
    await service.start()
    yield service
    await service.stop()


@pytest.fixture(scope="package")
async def service(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[Running]:
    """A service with some topics, some of which are not well, and users: an admin and one who reads. Its proxy says who
    comes, so that each test has tries of its own to sign in."""
    settings = {"api_keys": "root", "bcrypt_cost": 10, "trusted_proxies": "127.0.0.0/8"}
    service = Running(Settings.model_validate({"database_url": SecretStr(await new_database()), **settings}))
    await service.start()
    async with client(service, "root") as http:
        await add_user(http, name=BOSS, is_admin=True)
        await add_user(http, "read mail.*", name=READER)
        await fill(http)
    await minutes.tell(service.context.pools)
    await minutes.look(service.context.pools)
    yield service
    await service.stop()


@pytest.fixture
async def http(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    """The API of it, with a key that may do everything."""
    async with client(service, "root") as opened:
        yield opened


@pytest.fixture(scope="package")
async def boss(service: Running) -> AsyncIterator[Operator]:
    async with at_the_pages(service, BOSS) as operator:
        yield operator


@pytest.fixture(scope="package")
async def reader(service: Running) -> AsyncIterator[Operator]:
    """Who may see the topics of mail alone."""
    async with at_the_pages(service, READER) as operator:
        yield operator


@pytest.fixture
async def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    made = Topic(http, topic)
    await made.put()
    return made


async def fill(http: httpx.AsyncClient) -> None:
    """Jobs in every state, errors that say hostile things, a paused topic, a log, and more than a page of topics."""
    orders = Topic(http, "orders")
    await orders.put(max_deliveries=1, on_exhausted="dead_letter", dead_letter="dead.letters")
    await Topic(http, "dead.letters").put()
    await orders.append(*({"data": n} for n in range(9)), {"data": 9, "delay_ms": 3_600_000})
    await orders.append({"data": 10, "group": "g"}, {"data": 11, "group": "g"})
    claimed = [job["$seq"] for job in (await orders.claim(max=6, lease_ms=HOUR))["claimed"]]
    await orders.ack("n", claimed[:2])
    await orders.nack("n", claimed[2:4], errors=[HOSTILE, "ValueError: no address"])
    mail = Topic(http, "mail.outbound")
    await mail.put()
    await mail.add(12)
    (await http.post(f"{mail.path}/pause")).raise_for_status()
    await Topic(http, "events").put(type="log")
    await Topic(http, "events").append({"data": 1}, {"data": 2})
    for n in range(52):
        await Topic(http, f"many.{n:02}").put()
