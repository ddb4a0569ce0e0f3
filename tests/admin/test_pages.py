"""The admin pages over HTTP: who gets in, what a page shows, and that nothing foreign runs in it."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import asyncpg
import httpx
import pytest

from tests.api.dialect import refused
from tests.api.test_health import Link

if TYPE_CHECKING:
    from tests.api.conftest import Serve

HOSTILE = "<script>alert(1)</script>"
KEYS = "boss,reader:read,mailer::mail."


@pytest.fixture(scope="module")
async def guarded(serve: Serve) -> str:
    return (await serve(api_keys=KEYS)).url


@pytest.fixture
async def closed(guarded: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key, of a service that needs one."""
    async with httpx.AsyncClient(base_url=guarded, timeout=35) as client:
        yield client


def basic(password: str, user: str = "anybody") -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def is_page(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.startswith("<!doctype html>")


async def test_it_shows_who_holds_the_horizon_and_escapes_names(http: httpx.AsyncClient, database_url: str) -> None:
    visitor = await asyncpg.connect(database_url, server_settings={"application_name": HOSTILE})
    try:
        await visitor.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT '{HOSTILE}<i>\"&'")
        answer = await http.get("/admin/horizon")
    finally:
        await visitor.close()
    is_page(answer, 200)
    assert HOSTILE not in answer.text
    assert "<i>" not in answer.text
    assert "<strong><bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi></strong>" in answer.text
    assert "&lt;/script&gt;&lt;i&gt;&#34;&amp;" in answer.text
    assert f"SELECT pg_terminate_backend({visitor.get_server_pid()});" in answer.text
    assert 'http-equiv="refresh" content="10"' in answer.text
    assert "Nothing holds the horizon back." in answer.text  # for less than a minute


async def test_it_stops_refreshing_when_asked(http: httpx.AsyncClient) -> None:
    assert "http-equiv" not in (await http.get("/admin/horizon?refresh=off")).text


async def test_it_loads_nothing_from_elsewhere(http: httpx.AsyncClient) -> None:
    page = (await http.get("/admin/horizon")).text
    assert "<script" not in page
    links = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert all(link.startswith(("/admin", "?", "data:image/")) for link in links)
    (address,) = [link for link in links if ".css" in link]
    style = await http.get(address)
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in style.headers["cache-control"]
    assert "prefers-color-scheme: dark" in style.text
    assert "url(" not in style.text


@pytest.mark.parametrize("path", ["/admin", "/admin/"])
async def test_the_start_leads_to_the_first_page(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.headers["location"]) == (307, "/admin/horizon")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("wrong"),
        basic("", "boss"),
        {"authorization": "Basic"},
        {"authorization": "Basic !"},
        {"authorization": "Basic " + base64.b64encode(b"boss").decode()},
        {"authorization": "Basic " + base64.b64encode(b"\xff:\xfe").decode()},
        {"authorization": "Bearer wrong"},
    ],
    ids=str,
)
async def test_without_a_key_a_browser_is_asked_for_one(closed: httpx.AsyncClient, headers: dict[str, str]) -> None:
    answer = await closed.get("/admin/horizon", headers=headers)
    is_page(answer, 401)
    assert answer.headers["www-authenticate"].startswith("Basic realm=")
    assert "dead rows" not in answer.text.lower()


async def test_an_admin_key_opens_it_as_a_password(closed: httpx.AsyncClient) -> None:
    for headers in (basic("boss"), basic("boss", ""), {"authorization": "Bearer boss"}):
        is_page(await closed.get("/admin/horizon", headers=headers), 200)


@pytest.mark.parametrize("key", ["reader", "mailer"])
async def test_the_page_and_its_route_take_admin_for_every_topic(closed: httpx.AsyncClient, key: str) -> None:
    answer = await closed.get("/admin/horizon", headers=basic(key))
    is_page(answer, 403)
    assert "www-authenticate" not in answer.headers
    bearer = {"authorization": f"Bearer {key}"}
    refused(await closed.get("/v0/admin/horizon", headers=bearer), 403, "forbidden")


async def test_the_api_takes_no_password(closed: httpx.AsyncClient) -> None:
    refused(await closed.get("/v0/admin/horizon", headers=basic("boss")), 401, "unauthorized")
    refused(await closed.get("/v0/topics", headers=basic("boss")), 401, "unauthorized")
    answer = await closed.get("/v0/admin/horizon", headers={"authorization": "Bearer boss"})
    assert answer.status_code == 200
    assert {"healthy", "verdict", "holders", "tables", "limited", "performance"} <= set(answer.json())


async def test_errors_are_pages(http: httpx.AsyncClient) -> None:
    is_page(await http.get(f"/admin/{HOSTILE}"), 404)
    assert HOSTILE not in (await http.get(f"/admin/{HOSTILE}")).text
    is_page(await http.post("/admin/horizon"), 405)
    is_page(await http.get("/admin/horizon/"), 404)


async def test_without_its_database_the_page_says_so(serve: Serve, database_url: str) -> None:
    link = Link(database_url)
    await link.join()
    service = await serve(database_url=link.url)
    async with httpx.AsyncClient(base_url=service.url, timeout=35) as client:
        is_page(await client.get("/admin/horizon"), 200)
        await link.cut()
        answer = await client.get("/admin/horizon")
    await service.stop()
    await link.cut()
    is_page(answer, 503)
    assert answer.headers["retry-after"] == "1"
