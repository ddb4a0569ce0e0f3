"""Keys while the database is away: docs/keys.md. What was known counts on, nothing is added, and nothing opens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from tests.api.conftest import Serve
from tests.api.dialect import accepted, eventually, refused
from tests.api.keyring import Services, client, make
from tests.api.test_health import Link

NewDatabase = Callable[[], Awaitable[str]]


@pytest.fixture
async def services(serve: Serve, new_database: NewDatabase) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture
async def cuttable(services: Services) -> AsyncIterator[Link]:
    link = Link(services.url)
    await link.join()
    yield link
    await link.cut()


async def test_those_known_last_count_on(services: Services, serve: Serve, cuttable: Link) -> None:
    near = await services.start()
    async with client(near) as http:
        root = (await make(http))["secret"]
    async with client(near, root) as http:
        accepted(await http.put("/v0/topics/mine.q", json={"type": "queue"}))
        reader = await make(http, "reader", ["read"], prefixes=["mine."])
        revoked = await make(http, "revoked", ["read"])
        brief = await make(http, "brief", ["read"], expires_in_ms=4_000)
    far = await serve(database_url=cuttable.url)

    async def asks(secret: str, path: str = "/v0/topics/mine.q") -> httpx.Response:
        async with client(far, secret) as http:
            return await http.get(path)

    for key in (reader, revoked, brief):
        assert (await asks(key["secret"])).status_code == 200
    await cuttable.cut()
    async with client(near, root) as http:
        late = await make(http, "late", ["read"])
        accepted(await http.delete(f"/v0/keys/{revoked['id']}"))

    # Who is let in is told that the database is away; who is not learns nothing of it.
    for secret in (root, reader["secret"], revoked["secret"]):
        refused(await asks(secret), 503, "not_ready")
    assert (await asks(reader["secret"], "/metrics")).status_code == 200
    refused(await asks(reader["secret"], "/v0/topics/others.q"), 403, "forbidden")
    async with client(far, reader["secret"]) as http:
        refused(await http.put("/v0/topics/mine.q", json={"type": "queue"}), 403, "forbidden")
    for secret in ("", "hf_no_such_key", late["secret"]):
        refused(await asks(secret), 401, "unauthorized")
    await eventually(lambda: ended(asks, brief["secret"]))

    await cuttable.join()

    async def known() -> bool:
        return (await asks(late["secret"])).status_code == 200 and (await asks(revoked["secret"])).status_code == 401

    await eventually(known, 45)
    assert (await asks(reader["secret"])).status_code == 200
    await far.stop()


async def ended(asks: Callable[[str], Awaitable[httpx.Response]], secret: str) -> bool:
    """A key's own end needs no database."""
    return (await asks(secret)).status_code == 401
