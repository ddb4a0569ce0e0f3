"""What stands around answers: headers against a golden file, other origins, names and methods.

HOLDFAST_TEST_WRITE_HEADERS=1 writes the file anew.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from app.pages import render
from tests.api.dialect import Topic, accepted, refused
from tests.api.keyring import Services
from tests.api.raw import raw
from tests.launch import services as started

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

GOLDEN = Path(__file__).with_name("headers.txt")
KEY = {"authorization": "Bearer k"}
EVIL = "https://evil.example"
JSON = {"content-type": "application/json"}
# One of each kind of answer.
ASKED: list[tuple[str, str, dict[str, str], bytes]] = [
    ("GET", "/v0/topics", KEY, b""),
    ("GET", "/v0/topics", {}, b""),
    ("GET", "/v0/topics/none", KEY, b""),
    ("POST", "/v0/topics/golden", KEY | JSON, b"{"),
    ("POST", "/v0/topics/golden", KEY | {"content-type": "text/html"}, b"<script>"),
    ("GET", "/v0/topics/golden/claim", KEY, b""),
    ("POST", "/v0/keys", KEY | JSON, b'{"name":"k","scopes":["read"]}'),
    ("GET", "/api/messages", KEY, b""),
    ("POST", "/api/auth/login", JSON, b'{"username":"nobody","password":"no password"}'),
    ("POST", "/in/golden", KEY | JSON, b"1"),
    ("GET", "/metrics", KEY, b""),
    ("GET", "/healthz", {}, b""),
    ("GET", "/openapi.json", {}, b""),
    ("GET", "/admin/", KEY, b""),
    ("GET", "/admin/", {}, b""),
    ("GET", "/admin/none", KEY, b""),
    ("GET", "/admin/sign-in", {}, b""),
    ("POST", "/admin/sign-in", {"content-type": "application/x-www-form-urlencoded"}, b"name=&secret=k"),
    ("GET", render.asset_address("admin.css"), {}, b""),
    ("GET", render.asset_address("admin.js"), {}, b""),
    ("GET", "/none", {}, b""),
]
VARY = {"date": "…", "content-length": "…", "etag": "…", "last-modified": "…", "x-job-id": "…", "x-request-id": "…"}


@pytest.fixture(scope="module")
async def url(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], Awaitable[str]]
) -> AsyncIterator[str]:
    """A service as a process: what stands before the application speaks, too. The keys that are made stay in its
    database."""
    with started(tmp_path_factory.mktemp("headers")) as start:
        service = start(DATABASE_URL=await new_database(), API_KEYS="k")
        yield await asyncio.to_thread(service.up)


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=35) as http:
        yield http


def shown(answer: httpx.Response) -> list[str]:
    lines = []
    for name, value in sorted(answer.headers.items()):
        told = re.sub(r"holdfast_session=[^;]+", "holdfast_session=…", VARY.get(name, value))
        lines.append(f"    {name}: {told}")
    return lines


async def test_headers_are_as_they_were_looked_at(http: httpx.AsyncClient) -> None:
    await Topic(httpx.AsyncClient(base_url=http.base_url, headers=KEY), "golden").put()
    lines = []
    for method, path, headers, body in ASKED:
        answer = await http.request(method, path, headers=headers, content=body)
        who = "with a key" if "authorization" in headers else "without"
        name = re.sub(r"-?[0-9a-f]{8,}", "-…", path)
        lines += [f"{method} {name} {who}: {answer.status_code}", *shown(answer), ""]
    text = "\n".join(lines)
    if os.environ.get("HOLDFAST_TEST_WRITE_HEADERS"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_the_golden_file_says_what_pages_need() -> None:
    """Whoever writes it anew does not lose these."""
    blocks = GOLDEN.read_text().split("\n\n")
    pages = [block for block in blocks if " /admin" in block and "text/html" in block]
    assert pages
    for block in pages:
        [policy] = re.findall(r"content-security-policy: (.*)", block)
        for directive in ("default-src 'none'", "script-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert directive in policy
        assert "unsafe" not in policy
        for line in ("x-content-type-options: nosniff", "referrer-policy: same-origin", "cache-control: no-store"):
            assert line in block, block
    [cookie] = re.findall(r"set-cookie: (.*)", GOLDEN.read_text())
    assert {"HttpOnly", "SameSite=lax", "Path=/admin"} <= set(cookie.split("; "))
    assert "uvicorn" not in GOLDEN.read_text(), "what answers is nobody's business"


async def test_no_other_origin_reads_an_answer_unless_it_is_named(http: httpx.AsyncClient) -> None:
    for origin in (EVIL, "null", "http://localhost:3000"):
        asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        answers = [
            await http.request(method, path, headers=headers | {"origin": origin}, content=body)
            for method, path, headers, body in ASKED
            if not path.startswith("/admin/sign-in")
        ]
        for path in ("/v0/topics/golden", "/api/messages", "/in/golden", "/v0/keys"):
            answers.append(await http.options(path, headers=asks | {"origin": origin}))
            assert answers[-1].status_code == 405
        named = [name for answer in answers for name in answer.headers if name.startswith("access-control-")]
        assert named == []


async def test_other_methods_show_nothing_of_the_request(url: str) -> None:
    for method in ("TRACE", "TRACK", "CONNECT", "DEBUG", "GET\tX", "G\x7fT"):
        async with raw(url) as one:
            target = "t:443" if method == "CONNECT" else "/v0/topics"
            head = f"{method} {target} HTTP/1.1\r\nhost: t\r\nx-canary: canary\r\nconnection: close\r\n\r\n"
            await one.send(head.encode())
            said = await one.closed()
        assert re.match(rb"HTTP/1\.1 4\d\d ", said), said
        assert b"canary" not in said


async def test_the_name_that_a_client_came_by_is_in_no_answer(url: str) -> None:
    """Nothing is made of it: no link, no redirect."""
    for host in ("evil.example", "evil.example:1", "t\x00", "a" * 300, "", "[::1"):
        for path in ("/v0/topics", "/admin", "/admin/sign-in", "/v0/topics/", "/none"):
            async with raw(url) as one:
                head = f"GET {path} HTTP/1.1\r\nhost: {host}\r\nx-forwarded-host: {host}\r\nconnection: close\r\n\r\n"
                await one.send(head.encode())
                said = await one.closed()
            assert re.match(rb"HTTP/1\.1 [234]\d\d ", said), said
            assert not host or host.encode() not in said


SMUGGLED = [
    b"POST /v0/topics/golden HTTP/1.1\r\nhost: t\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\n{}{}x",
    b"POST /v0/topics/golden HTTP/1.1\r\nhost: t\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nG",
    b"POST /v0/topics/golden HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n"
    b"transfer-encoding: identity\r\n\r\n0\r\n\r\n",
    b"POST /v0/topics/golden HTTP/1.1\r\nhost: t\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"POST /v0/topics/golden HTTP/1.1\r\nhost: t\r\ncontent-length: -1\r\n\r\n",
    b"POST /v0/topics/golden HTTP/1.1\r\nhost: t\r\ncontent-length: +4\r\n\r\n{}{}",
    b"POST /v0/topics/golden HTTP/1.1\r\nhost : t\r\ncontent-length: 0\r\n\r\n",
    b"GET /v0/topics HTTP/1.1\r\nhost: t\r\n x: folded\r\n\r\n",
    b"GET http://evil.example/v0/topics HTTP/9.9\r\n\r\n",
]


async def test_what_two_servers_read_in_two_ways_is_one_answer_at_most(url: str) -> None:
    """Refused, and the connection closed: nothing that stands behind it is taken for a request."""
    for text in SMUGGLED:
        async with raw(url) as one:
            await one.send(text + b"GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
            said = await one.closed()
        first, *others = re.findall(rb"HTTP/1\.1 (\d+) ", said)
        assert first in {b"400", b"401", b"415", b"501", b"505"}, (text, said)
        assert b"200" not in others, (text, said)


# Where nobody signs in.


@pytest.fixture(scope="module")
async def opened(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service with neither key nor user, on loopback."""
    return await (await Services.make(serve, new_database)).start()


SITES = [
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}, 403),
    ({"origin": EVIL}, 403),
    ({"origin": "null"}, 403),
    ({"host": "evil.example"}, 403),
    ({"host": "evil.example:8080", "sec-fetch-site": "same-origin"}, 403),
    ({"host": "localhost.evil.example"}, 403),
    ({"host": "10.0.0.1"}, 403),
    ({"host": "127.0.0.1.evil.example"}, 403),
    ({"host": "localhost:8080"}, 200),
    ({"host": "holdfast.localhost"}, 200),
    ({"host": "127.8.8.8:80"}, 200),
    ({"host": "[::1]:8080"}, 200),
    ({"sec-fetch-site": "same-origin"}, 200),
    ({"sec-fetch-site": "none"}, 200),
    ({}, 200),
]


async def test_a_page_that_somebody_happens_to_look_at_does_nothing_here(opened: Running, topic: str) -> None:
    """A browser sends a form without a body to any address, this machine's too; and a site's name may lead here once
    its page is open (DNS rebinding). Where nobody signs in, that would be enough to read and delete everything."""
    async with httpx.AsyncClient(base_url=opened.url) as http:
        queue = Topic(http, topic)
        await queue.put()
        await queue.append({"data": 1})
        for headers, status in SITES:
            answers = [
                await http.post(f"{queue.path}/pause", headers=headers),
                await http.get(queue.path, headers=headers),
                await http.get("/metrics", headers=headers),
                await http.post(f"/api/topics/{topic}/purge", headers=headers),
            ]
            assert {answer.status_code for answer in answers} == {status}, (headers, answers[0].text[:200])
            if status == 403:
                refused(answers[0], 403, "forbidden")
                assert (await queue.state())["count"] == 1


async def test_many_names_of_this_machine_are_not_all_remembered(opened: Running) -> None:
    async with httpx.AsyncClient(base_url=opened.url) as http:
        for n in range(105):
            assert (await http.get("/v0/topics", headers={"host": f"h{n}.localhost"})).status_code == 200
    assert len(opened.context.access._local_hosts) <= 100


async def test_where_it_is_meant_to_be_open_to_others_it_is(
    serve: Serve, new_database: Callable[[], Awaitable[str]]
) -> None:
    """But to no page of another site."""
    service = await (await Services.make(serve, new_database)).start(host="0.0.0.0", allow_insecure_no_auth=True)
    async with httpx.AsyncClient(base_url=service.url) as http:
        accepted(await http.get("/v0/topics", headers={"host": "queue.internal"}))
        refused(await http.get("/v0/topics", headers={"host": "queue.internal", "origin": EVIL}), 403, "forbidden")


async def test_a_public_topic_is_for_pages_of_other_sites_too(opened: Running) -> None:
    async with httpx.AsyncClient(base_url=opened.url) as http:
        await Topic(http, "form").put(ingest="public")
        await Topic(http, "keyed").put()
        sent = {"content-type": "application/x-www-form-urlencoded", "origin": EVIL, "sec-fetch-site": "cross-site"}
        assert (await http.post("/in/form", content=b"a=1", headers=sent)).status_code == 202
        refused(await http.post("/in/keyed", content=b"a=1", headers=sent), 403, "forbidden")
