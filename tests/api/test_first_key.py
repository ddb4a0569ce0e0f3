"""The first key: how an open service closes, and that nothing opens it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from app.errors import ConfigurationError
from app.main import create_app
from app.settings import Settings
from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.events import working
from tests.api.keyring import ALL, Services, bearer, client, make

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture
async def service(services: Services) -> AsyncIterator[Running]:
    await services.forget_keys()
    service = await services.start()
    yield service
    await services.forget_keys()


async def test_its_first_key_closes_it(service: Running, topic: str) -> None:
    async with client(service) as anybody:
        assert (await anybody.get("/v0/topics")).status_code == 200
        await Topic(anybody, topic).put()
        async with working(Topic(anybody, topic)) as stream:
            made = await make(anybody, "first")
            assert made["created_by"] == "open"
            assert (await stream.error())["code"] == 401
            assert await stream.frame() is None
        refused(await anybody.get("/v0/topics"), 401, "unauthorized")
        refused(await anybody.post("/v0/keys", json={"name": "k", "scopes": ALL}), 401, "unauthorized")
        assert (await anybody.get("/healthz")).status_code == 200
    async with client(service, made["secret"]) as maker:
        await make(maker, "second")


@pytest.mark.parametrize("body", [{"scopes": ["read", "write", "delete"]}, {"scopes": ALL, "prefixes": ["mail."]}])
async def test_its_first_key_must_be_able_to_make_the_others(service: Running, body: Body) -> None:
    async with client(service) as anybody:
        error = refused(await anybody.post("/v0/keys", json={"name": "k", **body}), 400, "invalid_request")
        assert "first key" in error["message"]
        assert (await anybody.get("/v0/topics")).status_code == 200


async def test_of_many_first_keys_one_is_made(service: Running, services: Services) -> None:
    async with client(service) as anybody:
        body = {"name": "k", "scopes": ALL}
        answers = await asyncio.gather(*(anybody.post("/v0/keys", json=body) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [201, *[401] * 5]
    assert len(await services.sql("SELECT 1 FROM holdfast.api_keys")) == 1


async def test_another_process_does_not_let_anybody_make_one_meanwhile(service: Running, services: Services) -> None:
    other = await services.start()
    async with client(service) as here, client(other) as there:
        made = await make(here)
        refused(await there.post("/v0/keys", json={"name": "k", "scopes": ALL}), 401, "unauthorized")
        refused(await there.delete(f"/v0/keys/{made['id']}"), 401, "unauthorized")
        refused(await there.get("/v0/topics"), 401, "unauthorized")


async def test_it_does_not_open_again_when_the_last_key_ends(service: Running, services: Services) -> None:
    async with client(service) as anybody:
        made = await make(anybody)
        accepted(await anybody.delete(f"/v0/keys/{made['id']}", headers=bearer(made["secret"])))
        refused(await anybody.get("/v0/topics"), 401, "unauthorized")
        async with client(await services.start()) as later:
            refused(await later.get("/v0/topics"), 401, "unauthorized")
        await services.forget_keys()
        await service.context.access.directory.reload()
        refused(await anybody.get("/v0/topics"), 401, "unauthorized")


async def test_an_address_that_others_reach_needs_a_key_of_either_kind(service: Running, services: Services) -> None:
    app = create_app(Settings(database_url=SecretStr(services.url), host="0.0.0.0"))
    with pytest.raises(ConfigurationError) as error:
        async with app.router.lifespan_context(app):
            pass
    for way in ("HOLDFAST_HOST=0.0.0.0", "keys add", "HOLDFAST_API_KEYS", "HOLDFAST_ALLOW_INSECURE_NO_AUTH=1"):
        assert way in str(error.value)
    await services.start(host="0.0.0.0", allow_insecure_no_auth=True)
    await services.start(host="0.0.0.0", api_keys="root")
    async with client(service) as anybody:
        await make(anybody)
    await services.start(host="0.0.0.0")
