"""The command of the pages of a service that holds nothing: it makes a queue there, with and without sign-in."""

from __future__ import annotations

import asyncio
import html
import os
import re
from collections.abc import Awaitable, Callable

import pytest

from tests.api.conftest import Serve
from tests.api.dialect import accepted
from tests.api.keyring import Services, client
from tests.conftest import Running

COMMAND = re.compile(r'<pre id="command"[^>]*>(.*?)</pre>', re.DOTALL)


@pytest.mark.parametrize("path", ["/admin/", "/admin/topics"])
@pytest.mark.parametrize("key", ["", "root"])
async def test_it_makes_a_queue_with_a_job(
    serve: Serve, new_database: Callable[[], Awaitable[str]], path: str, key: str
) -> None:
    service = await (await Services.make(serve, new_database)).start(api_keys=key)
    async with client(service, key) as http:
        found = COMMAND.search((await http.get(path)).text)
        assert found is not None
        environment = {**os.environ, "HOLDFAST_API_KEY": key} if key else os.environ
        ran = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            html.unescape(found[1]),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, _ = await ran.communicate()
        assert b'"created":true' in said
        made = accepted(await http.get("/v0/topics/orders"))
    assert (made["type"], made["count"]) == ("queue", 1)
    config = made["config"]
    assert (config["max_deliveries"], config["dead_letter"], config["backoff"]["kind"]) == (
        20,
        "orders.dlq",
        "exponential",
    )


@pytest.mark.parametrize(
    ("proxies", "told", "scheme"),
    [
        ("127.0.0.1", "https", "https"),
        ("127.0.0.0/8, 10.0.0.1", "HTTPS", "https"),
        ("127.0.0.1", "http", "http"),
        ("127.0.0.1", "javascript", "http"),
        ("10.0.0.1", "https", "http"),
        ("", "https", "http"),
    ],
)
async def test_a_trusted_proxy_says_whether_there_is_tls(
    serve: Serve, new_database: Callable[[], Awaitable[str]], proxies: str, told: str, scheme: str
) -> None:
    service = await (await Services.make(serve, new_database)).start(trusted_proxies=proxies)
    async with client(service) as http:
        found = COMMAND.search((await http.get("/admin/", headers={"x-forwarded-proto": told})).text)
    assert found is not None
    host = service.url.removeprefix("http://")
    assert f"curl {scheme}://{host}/v0/topics/orders" in html.unescape(found[1])


async def test_behind_tls_the_command_is_for_tls(empty: Running) -> None:
    host = empty.url.removeprefix("http://")
    async with client(empty) as http:
        for referer, scheme in (
            (f"https://{host}/admin/sign-in", "https"),
            (f"http://{host}/admin/sign-in", "http"),
            (f"https://{host}.elsewhere.example/", "http"),
        ):
            found = COMMAND.search((await http.get("/admin/topics", headers={"referer": referer})).text)
            assert found is not None
            assert f"curl {scheme}://{host}/v0/topics/orders" in html.unescape(found[1])
