"""Two parties on one service: whatever one asks about what is the other's is answered as what there is not.

Every route of the OpenAPI document with each thing that its path and body can name. A route without a row in
tests/api/scopes.py fails, and so does one with a parameter that nothing of theirs is known for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import asyncpg
import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.keyring import Services, bearer, client, make
from tests.api.people import add_user, token_of
from tests.api.scopes import OF_TOKENS, OPEN, SIGNED_IN, TABLE
from tests.api.test_tenant_keys import CONFINED
from tests.security.objects import CANARY, TOPIC, Objects, Route, routes, state, theirs

if TYPE_CHECKING:
    from tests.conftest import Running

# Events for users are for anybody who may write: an id is the application's own, and no topic's. A view that somebody
# saves is their own.
THEIR_OWN = {("POST", "/v0/users/{id}/events"), ("PUT", "/v0/views/{name}")}
# The dialect says 401 of a watch that another key has made. Its id is 128 random bits: nobody meets it by guessing.
WATCH = ("GET", "/v0/watch/{wid}")
# By method: what PUT makes is not there yet for DELETE.
MATRIX = sorted(route for route in routes() if route not in OPEN | SIGNED_IN | OF_TOKENS)


@pytest.fixture(scope="module")
async def service(services: Services) -> Running:
    return await services.start(api_keys="root", bcrypt_cost=10, webhook_allow="none.example")


@pytest.fixture(scope="module")
async def objects(service: Running, services: Services) -> Objects:
    async with client(service, "root") as root:
        return await theirs(root, services)


@pytest.fixture(scope="module")
async def strangers(service: Running, objects: Objects) -> dict[str, dict[str, str]]:
    """Who may do everything, in topics of their own."""
    async with client(service, "root") as root:
        await Topic(root, "mine.queue").put(idempotency_window_ms=60_000)
        key = await make(root, "mine", prefixes=["mine."])
        await add_user(root, "read mine.*", "write mine.*", "admin mine.*", name="mine")
        # Prefixes end where they end: this one is no other's beginning.
        near = await make(root, "near", prefixes=[TOPIC + "."])
        tenant = await make(root, "tenant", ["read", "write"], tenant="mine")
        return {
            "a key": bearer(key["secret"]),
            "a user": await token_of(root, "mine"),
            "a key of a longer prefix": bearer(near["secret"]),
            "a tenant's key": bearer(tenant["secret"]),
        }


@pytest.fixture(scope="module")
async def http(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service) as http:
        yield http


@pytest.fixture
async def mine(service: Running, strangers: dict[str, dict[str, str]]) -> AsyncIterator[Topic]:
    """A queue of the first stranger's own, by their key."""
    async with httpx.AsyncClient(base_url=service.url, headers=strangers["a key"], timeout=35) as http:
        yield Topic(http, "mine.queue")


class Unchanged:
    """Asserts that nothing that is kept has changed since it was last asked."""

    def __init__(self, db: asyncpg.Connection[asyncpg.Record]) -> None:
        self._db = db
        self._last: dict[str, str] = {}

    async def look(self) -> None:
        """What has changed until now was meant."""
        self._last = await state(self._db)

    async def check(self) -> None:
        now = await state(self._db)
        before, self._last = self._last, now
        assert now == before


@pytest.fixture(scope="module")
async def kept(services: Services, strangers: dict[str, dict[str, str]]) -> AsyncIterator[Unchanged]:
    connection = await asyncpg.connect(services.url)
    kept = Unchanged(connection)
    await kept.look()
    yield kept
    await connection.close()


async def ask(http: httpx.AsyncClient, route: Route, url: str, body: object, headers: dict[str, str]) -> httpx.Response:
    content = {} if body is None else {"json": body}
    return await http.request(route[0], url, headers=headers, **content)  # type: ignore[arg-type]


@pytest.mark.parametrize("route", MATRIX, ids=" ".join)
async def test_what_is_theirs_is_as_if_it_were_not(
    http: httpx.AsyncClient,
    kept: Unchanged,
    objects: Objects,
    strangers: dict[str, dict[str, str]],
    route: Route,
) -> None:
    expected = TABLE[route].foreign
    for who in ("a key", "a user"):
        seen: list[tuple[int, str]] = []
        for asked in objects.asked(route):
            answer = await ask(http, route, asked.url, asked.body, strangers[who])
            if (route, answer.status_code) == (WATCH, 401):
                continue
            assert answer.status_code == expected, (who, asked.url, answer.text[:300])
            seen.append(asked.told(answer))
            if expected == 200:
                assert CANARY not in seen[-1][1], (who, asked.url)
        if expected != 200:
            assert [told for told in seen if told != seen[0]] == [], (who, "tells what there is")
        if route in objects.cursors:
            answer = await http.get(route[1], params={"cursor": objects.cursors[route]}, headers=strangers[who])
            assert answer.status_code in {200, 403}, answer.text
            assert CANARY not in answer.text, (who, "is told more by another's cursor")
    if route in THEIR_OWN:
        await kept.look()
    else:
        await kept.check()


async def test_a_tenants_key_is_refused_alike(
    http: httpx.AsyncClient, kept: Unchanged, objects: Objects, strangers: dict[str, dict[str, str]]
) -> None:
    """And in a topic that it may use, it finds no message of another tenant."""
    for route in MATRIX:
        answers = {
            asked.told(await ask(http, route, asked.url, asked.body, strangers["a tenant's key"]))
            for asked in (objects.asked(route) if route not in CONFINED or "/{id}" in route[1] else ())
        }
        if answers:
            [(status, _)] = answers
            assert status == (404 if route in CONFINED else 403), route
    await kept.check()


async def test_a_lease_is_of_its_job_alone(mine: Topic, kept: Unchanged, objects: Objects) -> None:
    """With the lease of another topic's job, whose seq is that of one's own."""
    await mine.append({"data": 1})
    seq = (await mine.take())["$seq"]
    assert seq == 1, "as theirs is"
    await kept.look()
    for lease in (objects.lease, f"lease_{'a' * 32}"):
        for verb, more in (("ack", {}), ("nack", {}), ("fail", {}), ("extend", {"lease_ms": 60_000})):
            answer = await mine.post(verb, node=CANARY, seqs=[seq], lease_ids=[lease], **more)
            assert answer["skipped"] == [seq]
    answers = [
        await mine.http.post(f"/api/messages/{objects.ids[0]}/ack", json={"lease_id": lease})
        for lease in (objects.lease, f"lease_{'a' * 32}")
    ]
    assert answers[0].text == answers[1].text
    assert {one.status_code for one in answers} == {404}
    await kept.check()
    await mine.ack("n", [seq])


async def test_their_dedupe_ids_and_idempotency_keys_are_not_mine(mine: Topic, service: Running) -> None:
    async with client(service, "root") as root:
        await Topic(root, TOPIC).append({"data": CANARY}, idempotency_key=f"{CANARY}-batch")
    assert (await mine.append({"data": 1}, idempotency_key=f"{CANARY}-batch"))["deduped"] is False
    answer = await mine.append({"data": 1, "dedupe_id": f"{CANARY}-once"})
    assert CANARY not in str(answer)
    assert len(answer["seqs"]) == 1


async def test_a_dead_letter_or_webhook_of_theirs_is_named_in_vain(mine: Topic, kept: Unchanged) -> None:
    """To send one's own jobs there, or to sign with what is kept there."""
    await kept.look()
    for name in (f"{TOPIC}.dlq", "theirs.of-nobody"):
        body: Body = {"type": "queue", "dead_letter": name}
        error = refused(await mine.http.put("/v0/topics/mine.new", json=body), 403, "forbidden")
        assert error["detail"] == {"topic": name}
    # The mask of a secret stands for the topic's own, of which there is none.
    body = {"type": "queue", "webhook": {"url": "https://mine.example", "secret": "********"}}
    answer = await mine.http.put("/v0/topics/mine.new", json=body)
    assert answer.status_code in {400, 422}, answer.text
    await kept.check()


async def test_a_prefix_is_no_other_names_beginning(
    http: httpx.AsyncClient, strangers: dict[str, dict[str, str]]
) -> None:
    near = strangers["a key of a longer prefix"]
    refused(await http.get(f"/v0/topics/{TOPIC}", headers=near), 403, "forbidden")
    accepted(await http.get(f"/v0/topics/{TOPIC}.log", headers=near))
