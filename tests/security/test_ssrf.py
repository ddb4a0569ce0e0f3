"""A URL that a client names leads nowhere that is private: no connection reaches a canary that listens here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import httpx
import pytest

from tests.api.dialect import Topic, eventually
from tests.api.keyring import Services
from tests.webhooks.receiver import SECRET, Receiver
from tests.webhooks.test_sending import Names

if TYPE_CHECKING:
    from tests.conftest import Running

# Each is this machine, to somebody.
HOSTS = [
    *("127.0.0.1", "127.1", "127.0.1", "127.8.9.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001"),
    *("0.0.0.0", "0", "localhost", "LOCALHOST", "localhost.", "127.0.0.1.", "127.0.0.01"),
    *("[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]"),
    *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fec0::1]", "[fd00::1]"),
    *("169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "192.0.0.192", "10.0.0.1", "192.168.0.1", "172.16.0.1"),
]
# What some parsers read as another host than others do.
FORMS = [
    "http://example.com@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@example.com/",
    "http://127.0.0.1:{port}#@example.com/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://example.com:80@127.0.0.1:{port}/",
    "http://127.0.0.1 :{port}/",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.0.1:{port}\r\nx: y/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "HTTP://127.0.0.1:{port}/",
    "http://①②⑦.0.0.1:{port}/",
    "http://127。0。0。1:{port}/",
    "http://[127.0.0.1]:{port}/",
    "http://[::1%25lo]:{port}/",
    "ftp://127.0.0.1:{port}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_x",
    "unix:///var/run/x.sock",
    "data:text/plain,x",
    "javascript:alert(1)",
]


class Canary:
    """Listens on every address of this machine, and counts who comes."""

    def __init__(self) -> None:
        self.came = 0
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Canary]:
        async def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.came += 1
            writer.close()

        servers = [await asyncio.start_server(count, "0.0.0.0", 0)]
        self.port = servers[0].sockets[0].getsockname()[1]
        with contextlib.suppress(OSError):  # no IPv6 here
            servers.append(await asyncio.start_server(count, "::1", self.port))
        yield self
        for server in servers:
            server.close()


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    async with Canary().listening() as one:
        yield one


@pytest.fixture(scope="module")
async def sending(services: Services) -> Running:
    """A service that may tell one name that is nobody's, and nothing else that is private."""
    return await services.start(webhook_secret=SECRET, webhook_allow="hop.test")


@pytest.fixture
async def queue(sending: Running, topic: str) -> AsyncIterator[Topic]:
    async with httpx.AsyncClient(base_url=sending.url, timeout=35) as http:
        made = Topic(http, topic)
        await made.put()
        yield made


async def ended(services: Services, queue: Topic) -> dict[str, str]:
    """How the deliveries of a topic have ended, by their URLs: once all have been tried."""
    query = """
        SELECT convert_from(payload, 'UTF8')::json->>'url' AS url, coalesce(last_error, '') AS error
        FROM holdfast.jobs WHERE topic = 'holdfast.webhooks' AND tag = $1
    """

    async def tried() -> list[asyncpg.Record] | None:
        rows = await services.sql(query, queue.name)
        return rows if rows and all(row["error"] for row in rows) else None

    rows = await eventually(tried, 30) or []
    return {row["url"]: row["error"] for row in rows}


async def complete(queue: Topic, urls: list[str]) -> list[str]:
    """Jobs whose records name these; those that are taken."""
    taken = []
    for url in urls:
        answer = await queue.http.post(queue.path, json={"records": [{"data": 1, "webhook": url}]})
        assert answer.status_code in {200, 400}, answer.text
        if answer.status_code == 200:
            taken.append(url)
    if taken:
        jobs = await queue.claim(max=1_000)
        await queue.ack("n", [job["$seq"] for job in jobs["claimed"]])
    return taken


async def test_no_name_of_this_machine_is_told(services: Services, queue: Topic, canary: Canary) -> None:
    urls = [f"{scheme}://{host}:{canary.port}/hook" for host in HOSTS for scheme in ("http", "https")]
    _, writer = await asyncio.open_connection("127.8.9.1", canary.port)
    writer.close()

    async def heard() -> bool:
        return canary.came == 1

    await eventually(heard)  # so that silence means something
    taken = await complete(queue, urls)
    assert len(taken) > len(urls) // 2
    errors = await ended(services, queue)
    assert set(errors) == set(taken)
    told = {url: error for url, error in errors.items() if "not public" not in error and "gaierror" not in error}
    assert told == {}, "refused for another reason than where it leads"
    assert canary.came == 1


async def test_no_form_of_a_url_is_read_in_two_ways(services: Services, queue: Topic, canary: Canary) -> None:
    taken = await complete(queue, [form.format(port=canary.port) for form in FORMS])
    assert len(taken) <= 4, taken
    errors = await ended(services, queue)
    assert set(errors) == set(taken)
    assert canary.came == 0


async def test_a_name_that_leads_here_later_leads_nowhere(
    services: Services, queue: Topic, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: public when it is asked for, private the next time; or both at once."""
    names = Names(monkeypatch)
    names.answers["rebound.test"] = [["192.0.2.1"], ["127.0.0.1"]]
    names.answers["private.test"] = [["127.0.0.1"]]
    names.answers["mapped.test"] = [["::ffff:127.0.0.1"]]
    names.answers["both.test"] = [["127.0.0.1", "::1"]]
    urls = [f"http://{host}:{canary.port}/hook" for host in names.answers]
    assert await complete(queue, urls) == urls
    assert set(await ended(services, queue)) == set(urls)
    assert canary.came == 0
    assert names.asked.count("rebound.test") == 1, "looked up once, and connected to that"


async def test_a_redirect_leads_nowhere(
    services: Services, queue: Topic, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a receiver that may be told: where it points to is not asked."""
    names = Names(monkeypatch)
    names.answers["hop.test"] = [["127.0.0.1"]]
    hops: dict[str, Receiver] = {}
    for status in (301, 302, 303, 307, 308):
        hop = Receiver()
        await hop.up()
        hop.answers = [f"HTTP/1.1 {status} Found\r\nlocation: http://127.0.0.1:{canary.port}/\r\n\r\n".encode()] * 3
        hops[hop.url(host="hop.test")] = hop
    await complete(queue, list(hops))
    errors = set((await ended(services, queue)).values())
    for hop in hops.values():
        await hop.down()
    assert errors == {f"HTTP {status}: redirects are not followed" for status in (301, 302, 303, 307, 308)}
    assert canary.came == 0
