"""Streams of pages over HTTP: what comes, to whom, how many there may be, and what ends them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from app.pages import render, screens
from app.pages.live import frame
from app.pages.screens import MOST_STREAMS, Screens
from tests.admin.operator import at_the_pages
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


@asynccontextmanager
async def visit(service: Running, http: httpx.AsyncClient, *grants: str, admin: bool = False) -> AsyncIterator[Viewer]:
    """Somebody new who has signed in."""
    made = await add_user(http, *grants, is_admin=admin)
    async with at_the_pages(service, made["username"]) as operator:
        yield Viewer(operator.http, made["id"])


@dataclass(frozen=True)
class Viewer:
    http: httpx.AsyncClient
    user_id: str

    def watches(self, path: str) -> AbstractAsyncContextManager[WorkStream]:
        return watching(self.http, path)


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
    service: Running, http: httpx.AsyncClient, topic: str
) -> None:
    queue, path = Topic(http, topic), f"/admin/topics/{topic}"
    await queue.put()
    async with AsyncExitStack() as stack:
        viewers = [await stack.enter_async_context(visit(service, http, admin=True)) for _ in range(2)]
        streams = [await stack.enter_async_context(one.watches(path)) for one in viewers for _ in range(2)]
        assert streams[0].headers["x-accel-buffering"] == "no"
        assert streams[0].headers["content-type"].startswith("text/event-stream")
        assert [path in str(key) for key in service.context.core(Screens)._screens].count(True) == 1
        await queue.add(3)
        parts = [await part_with(stream, 'title="3">3<') for stream in streams]
        assert len({AGE.sub("", PROOF.sub("", shown)) for shown in parts}) == 1
        proofs = [set(PROOF.findall(shown)) for shown in parts]
        of_forms = [set(PROOF.findall((await one.http.get(path)).text)) for one in viewers]
        assert proofs == [one for one in of_forms for _ in range(2)]
        assert len(set.union(*proofs)) == 2
        assert all(shown.startswith('<div id="live"') for shown in parts)
    await nobody_looks(service)


async def test_rights_are_those_of_the_page_and_not_shared_with_others(
    service: Running, http: httpx.AsyncClient, topic: str
) -> None:
    path = f"/admin/topics/{topic}"
    await Topic(http, topic).put()
    async with (
        visit(service, http, f"read {topic}") as reader,
        visit(service, http, admin=True) as boss,
        reader.watches(path) as read,
        boss.watches(path) as all_of_it,
        watching(http, path),  # a key, by its header, as scripts have it
    ):
        assert "/pause" not in await part(read)
        assert "/pause" in await part(all_of_it)
        for other, status in (("/admin/topics/another", 403), ("/admin/reapers", 403), ("/admin/keys", 403)):
            assert await status_of(reader.http, other) == status
        assert await status_of(boss.http, "/admin/topics/no-such") == 404
        assert await status_of(boss.http, f"{path}/config") == 406  # nothing moves there
        assert await status_of(boss.http, path, {"sec-fetch-site": "cross-site"}) == 403
        async with httpx.AsyncClient(base_url=service.url) as nobody:
            assert await status_of(nobody, path) == 401


async def test_a_session_has_so_many_streams_and_the_service_a_bound_for_all(
    service: Running, http: httpx.AsyncClient
) -> None:
    await nobody_looks(service)
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(visit(service, http, admin=True)) for _ in range(2)]
        before = service.context.quota.streams
        for page in ("/admin/", "/admin/topics", "/admin/horizon", "/admin/reapers")[:MOST_STREAMS]:
            await stack.enter_async_context(one.watches(page))
        assert service.context.quota.streams == before + MOST_STREAMS
        async with one.http.stream("GET", "/admin/", headers=EVENTS) as answer:
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert f"The limit is {MOST_STREAMS}." in (await answer.aread()).decode()
        assert (await one.http.get("/admin/")).status_code == 200
        async with other.watches("/admin/"):
            pass
    await nobody_looks(service)

    async def none() -> bool:
        return service.context.quota.streams == before

    await until(none, "none counts any more")
    shown = (await http.get("/metrics")).text
    assert "holdfast_page_streams_open 0" in shown
    assert 'verb="live_stream"' in shown


@pytest.mark.parametrize("change", ["password", "grant", "gone"])
async def test_other_rights_or_none_end_the_stream(service: Running, http: httpx.AsyncClient, change: str) -> None:
    async with visit(service, http, "read mail.*") as one, one.watches("/admin/topics") as stream:
        await part(stream)
        user = f"/api/users/{one.user_id}"
        if change == "grant":
            done(await http.post(f"{user}/grants", json={"action": "write", "topic_pattern": "mail.*"}), 201)
        elif change == "password":
            done(await http.put(user, json={"password": "another one of many letters"}))
        else:
            assert (await http.delete(user)).is_success
        assert await error(stream) == (401, "unauthorized")
        if change == "grant":  # it can be opened again, with what they may do now
            async with one.watches("/admin/topics") as again:
                await part(again)


async def test_a_topic_that_goes_ends_its_page(service: Running, http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, topic)
    await queue.put()
    async with watching(http, f"/admin/topics/{topic}") as stream:
        await part(stream)
        assert (await http.delete(queue.path)).is_success
        assert await error(stream) == (404, "topic_not_found")


async def test_a_stop_closes_streams_at_once(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> None:
    stopping = await (await Services.make(serve, new_database)).start()
    async with client(stopping) as http, watching(http, "/admin/") as stream:
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
