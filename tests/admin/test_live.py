"""Streams of pages over HTTP: what comes, to whom, how many there may be, and what ends them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from app.http.credentials import SESSION
from app.pages import render, screens
from app.pages.live import frame
from app.pages.screens import MOST_STREAMS, Screens
from tests.admin.test_session import browser, sign_in
from tests.api.conftest import Serve
from tests.api.dialect import Topic
from tests.api.events import WorkStream, streaming
from tests.api.keyring import Services, client
from tests.api.messages.client import done
from tests.api.people import add_user
from tests.conftest import Running
from tests.queue.calls import PATIENCE, until

EVENTS = {"accept": "text/event-stream"}
AGE = re.compile(r'<span class="age">[^<]*</span>')
PROOF = re.compile(r'(?<=name="proof" value=")[0-9a-f]*')


@pytest.fixture(scope="module", autouse=True)
def _soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screens, "LEAST_SECONDS", 0.02)
        yield


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture(scope="module")
async def guarded(services: Services) -> Running:
    return await services.start(api_keys="root", bcrypt_cost=10, trusted_proxies="127.0.0.0/8")


@pytest.fixture
async def root(guarded: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(guarded, "root") as http:
        yield http


@asynccontextmanager
async def visit(service: Running, root: httpx.AsyncClient, *grants: str, admin: bool = False) -> AsyncIterator[Viewer]:
    """Somebody new who has signed in."""
    made = await add_user(root, *grants, is_admin=admin)
    async with browser(service, "10.3.0.1") as http:
        answer = await sign_in(http, made["username"])
        assert SESSION in answer.cookies
        yield Viewer(http, made["id"])


class Viewer:
    def __init__(self, http: httpx.AsyncClient, user_id: str) -> None:
        self.http = http
        self.user_id = user_id

    def watches(self, path: str) -> AbstractAsyncContextManager[WorkStream]:
        return watching(self.http, path)

    async def proof(self, path: str) -> str:
        """What forms of their session send."""
        found = PROOF.search((await self.http.get(path)).text)
        assert found is not None
        return found[0]


def watching(http: httpx.AsyncClient, path: str) -> AbstractAsyncContextManager[WorkStream]:
    return streaming(http, path, WorkStream, {})


async def part(stream: WorkStream) -> str:
    """What comes next of the page."""
    while True:
        shown = await stream.frame(20)
        assert shown is not None
        if shown.fields.get("event") == "page":
            return shown.fields["data"]
        assert shown.fields.get("event") in {None, "beat"}, shown.text


async def part_with(stream: WorkStream, text: str) -> str:
    """The same, once this stands there."""
    async with asyncio.timeout(PATIENCE):
        while text not in (shown := await part(stream)):
            pass
    return shown


async def error(stream: WorkStream) -> tuple[int, str]:
    """How it ends."""
    async with asyncio.timeout(PATIENCE):
        while True:
            shown = await stream.frame(20)
            assert shown is not None
            if shown.fields.get("event") == "error":
                assert await stream.frame(20) is None
                return shown.data["code"], shown.data["error"]


async def status_of(http: httpx.AsyncClient, path: str, headers: Mapping[str, str] = MappingProxyType({})) -> int:
    """How a page's stream is answered, and no more of it."""
    async with http.stream("GET", path, headers={**EVENTS, **headers}) as answer:
        return answer.status_code


async def nobody_looks(service: Running) -> None:
    async def none() -> bool:
        return service.context.core(Screens).count() == 0

    await until(none, "no stream is open")


async def test_what_moves_comes_once_for_all_and_each_has_the_proof_of_their_own(
    guarded: Running, root: httpx.AsyncClient, topic: str
) -> None:
    queue, path = Topic(root, topic), f"/admin/topics/{topic}"
    await queue.put()
    async with AsyncExitStack() as stack:
        viewers = [await stack.enter_async_context(visit(guarded, root, admin=True)) for _ in range(2)]
        streams = [await stack.enter_async_context(one.watches(path)) for one in viewers for _ in range(2)]
        assert streams[0].headers["x-accel-buffering"] == "no"
        assert streams[0].headers["content-type"].startswith("text/event-stream")
        assert len(guarded.context.core(Screens)._screens) == 1
        await queue.add(3)
        parts = [await part_with(stream, 'title="3">3<') for stream in streams]
        assert len({AGE.sub("", PROOF.sub("", shown)) for shown in parts}) == 1
        proofs = [set(PROOF.findall(shown)) for shown in parts]
        assert proofs == [{await one.proof(path)} for one in viewers for _ in range(2)]
        assert len(set.union(*proofs)) == 2
        assert all(shown.startswith('<div id="live"') for shown in parts)
    await nobody_looks(guarded)


async def test_rights_are_those_of_the_page_and_not_shared_with_others(
    guarded: Running, root: httpx.AsyncClient, topic: str
) -> None:
    path = f"/admin/topics/{topic}"
    await Topic(root, topic).put()
    async with (
        visit(guarded, root, f"read {topic}") as reader,
        visit(guarded, root, admin=True) as boss,
        reader.watches(path) as read,
        boss.watches(path) as all_of_it,
        watching(root, path),  # a key, by its header, as scripts have it
    ):
        assert "/pause" not in await part(read)
        assert "/pause" in await part(all_of_it)
        for other, status in (("/admin/topics/another", 403), ("/admin/reapers", 403), ("/admin/keys", 403)):
            assert await status_of(reader.http, other) == status
        assert await status_of(boss.http, "/admin/topics/no-such") == 404
        assert await status_of(boss.http, f"{path}/config") == 406  # nothing moves there
        assert await status_of(boss.http, path, {"sec-fetch-site": "cross-site"}) == 403
        async with httpx.AsyncClient(base_url=guarded.url) as nobody:
            assert await status_of(nobody, path) == 401


async def test_a_session_has_so_many_streams_and_the_service_a_bound_for_all(
    guarded: Running, root: httpx.AsyncClient
) -> None:
    await nobody_looks(guarded)
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(visit(guarded, root, admin=True)) for _ in range(2)]
        before = guarded.context.quota.streams
        for page in ("/admin/", "/admin/topics", "/admin/horizon", "/admin/reapers")[:MOST_STREAMS]:
            await stack.enter_async_context(one.watches(page))
        assert guarded.context.quota.streams == before + MOST_STREAMS
        async with one.http.stream("GET", "/admin/", headers=EVENTS) as answer:
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert f"{MOST_STREAMS} are the most" in (await answer.aread()).decode()
        assert (await one.http.get("/admin/")).status_code == 200
        async with other.watches("/admin/"):
            pass
    await nobody_looks(guarded)

    async def none() -> bool:
        return guarded.context.quota.streams == before

    await until(none, "none counts any more")
    shown = (await root.get("/metrics")).text
    assert "holdfast_page_streams_open 0" in shown
    assert 'verb="live_stream"' in shown


@pytest.mark.parametrize("change", ["password", "grant", "gone"])
async def test_other_rights_or_none_end_the_stream(guarded: Running, root: httpx.AsyncClient, change: str) -> None:
    async with visit(guarded, root, "read mail.*") as one, one.watches("/admin/topics") as stream:
        await part(stream)
        user = f"/api/users/{one.user_id}"
        if change == "grant":
            done(await root.post(f"{user}/grants", json={"action": "write", "topic_pattern": "mail.*"}), 201)
        elif change == "password":
            done(await root.put(user, json={"password": "another one of many letters"}))
        else:
            assert (await root.delete(user)).is_success
        assert await error(stream) == (401, "unauthorized")
        if change == "grant":  # it can be opened again, with what they may do now
            async with one.watches("/admin/topics") as again:
                await part(again)


async def test_a_topic_that_goes_ends_its_page(guarded: Running, root: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(root, topic)
    await queue.put()
    async with watching(root, f"/admin/topics/{topic}") as stream:
        await part(stream)
        assert (await root.delete(queue.path)).is_success
        assert await error(stream) == (404, "topic_not_found")


async def test_a_stop_closes_streams_at_once(services: Services, guarded: Running) -> None:
    stopping = await services.start(api_keys="root", bcrypt_cost=10)
    async with client(stopping, "root") as http, watching(http, "/admin/") as stream:
        await part(stream)
        ends = asyncio.create_task(stopping.stop())
        assert await error(stream) == (503, "shutting_down")
        await ends


def test_what_moves_has_nothing_of_the_viewer_but_what_forms_send() -> None:
    """Else one viewer's name would go to all who share a look."""
    for template in (Path(render.__file__).parent / "templates").glob("*.html"):
        if template.name != "base.html":
            assert set(re.findall(r"visitor\.(\w+)", template.read_text())) <= {"proof"}, template.name


def test_what_anybody_has_written_ends_no_line_of_a_frame() -> None:
    html = "\n<p>a\rdata: b\r\nevent: x\n\ndata: ü</p>\n".encode()
    shown = frame(html).decode()
    assert shown == "event: page\ndata: <p>a\ndata: data: b\ndata: event: x\ndata: \ndata: data: ü</p>\n\n"
