"""What an instance reaches, measured on demand: one at a time over all processes, on a topic that goes again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx
import pytest

from app import __version__
from app.edge import bench
from app.queue import benches
from tests.api.dialect import Body, accepted, refused
from tests.api.keyring import Services, client

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

PATH = "/v0/admin/bench"
LEFT = benches.LEFT_AFTER * 1.1
SMALL = {"jobs": 25, "batch": 10, "clients": 2}


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture(scope="module")
async def service(services: Services) -> Running:
    return await services.start(api_keys="root")


@pytest.fixture
async def http(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service, "root") as http:
        yield http


async def topics(http: httpx.AsyncClient) -> list[str]:
    return [one["topic"] for one in accepted(await http.get("/v0/topics"))["topics"]]


async def earlier(http: httpx.AsyncClient) -> list[Body]:
    found: list[Body] = accepted(await http.get(PATH))["benches"]
    return found


async def test_each_verb_is_measured_and_nothing_is_left_but_figures(http: httpx.AsyncClient) -> None:
    made = accepted(await http.post(PATH, json=SMALL))
    assert [(one["verb"], one["jobs"]) for one in made["verbs"]] == [("enqueue", 25), ("claim", 25), ("ack", 25)]
    assert made["verbs"][0]["calls"] == 3
    for one in made["verbs"]:
        assert 0 < one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"] <= one["max_ms"]
        assert one["jobs_per_second"] == pytest.approx(one["jobs"] / one["seconds"], rel=0.1, abs=1)
    del made["performance"]
    assert (await earlier(http))[0] == made
    assert made["version"] == __version__
    assert not any(name.startswith(bench.PREFIX) for name in await topics(http))
    entries = accepted(await http.get("/v0/admin/audit", params={"page_size": "2"}))["entries"]
    assert [one["action"] for one in entries] == ["topic.deleted", "topic.created"]


async def test_one_at_a_time_and_one_that_was_left_holds_nobody_up(http: httpx.AsyncClient, services: Services) -> None:
    left = uuid4()
    await services.sql("INSERT INTO holdfast.benches (id, actor, version) VALUES ($1, 'a', '1')", left)
    topic = f"{bench.PREFIX}{left.hex}"
    accepted(await http.put(f"/v0/topics/{topic}", json={"type": "queue"}))
    refused(await http.post(PATH, json=SMALL), 409, "already_exists")
    await services.sql("UPDATE holdfast.benches SET started_at = now() - $2::interval WHERE id = $1", left, LEFT)
    accepted(await http.post(PATH, json=SMALL))
    assert topic not in await topics(http)  # its process had died before it could delete it


async def test_of_two_at_once_one_is_refused(http: httpx.AsyncClient, services: Services) -> None:
    answers = await asyncio.gather(*(http.post(PATH, json={"jobs": 400, "batch": 10, "clients": 1}) for _ in "ab"))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses in ([200, 409], [200, 200])  # where the first had ended before the second began
    assert not await services.sql("SELECT FROM holdfast.benches WHERE finished_at IS NULL")


async def test_so_many_are_kept(http: httpx.AsyncClient, services: Services) -> None:
    await services.sql(
        """INSERT INTO holdfast.benches (id, started_at, finished_at, actor, version, figures)
           SELECT gen_random_uuid(), now() - n * interval '1 day', now(), 'a', '0',
                  '{"jobs": 1, "batch": 1, "clients": 1, "size": 1, "verbs": []}' FROM generate_series(1, 30) AS n"""
    )
    made = accepted(await http.post(PATH, json=SMALL))
    found = await earlier(http)
    assert len(found) == benches.MOST_KEPT
    assert found[0]["id"] == made["id"]


@pytest.mark.parametrize("body", [{"jobs": 0}, {"jobs": 10**6}, {"clients": 99}, {"rate": 1}])
async def test_it_is_bounded(http: httpx.AsyncClient, body: Body) -> None:
    refused(await http.post(PATH, json=body), 400, "invalid_request")


async def test_one_that_fails_is_forgotten_with_its_topic(http: httpx.AsyncClient, services: Services) -> None:
    kept = await earlier(http)
    await services.sql(
        """CREATE FUNCTION holdfast.no() RETURNS trigger LANGUAGE plpgsql AS
           $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'disk_full'; END$$"""
    )
    await services.sql("CREATE TRIGGER no BEFORE INSERT ON holdfast.jobs EXECUTE FUNCTION holdfast.no()")
    try:
        answer = await http.post(PATH, json=SMALL)
    finally:
        await services.sql("DROP FUNCTION holdfast.no() CASCADE")
    assert answer.status_code >= 500
    assert await earlier(http) == kept
    assert not any(name.startswith(bench.PREFIX) for name in await topics(http))
    accepted(await http.post(PATH, json=SMALL))
