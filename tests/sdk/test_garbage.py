"""`holdfast objects gc`: what nothing refers to goes, and nothing else, whatever becomes of jobs meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import obstore
import pytest
from obstore.store import LocalStore

from holdfast import AsyncClient, Client, Objects, TopicConfig, errors
from holdfast._garbage import Collected, _payloads, collect
from holdfast.models.keys import Scope
from tests.api.keyring import Services
from tests.conftest import Running
from tests.sdk.cli import Cli
from tests.sdk.conftest import Serve

DAY = timedelta(days=1)
ALL: Final[Sequence[Scope]] = ("read", "write", "delete", "admin")


@dataclass
class Store:
    """Objects in a folder, whose files can be made old."""

    folder: Path

    def __post_init__(self) -> None:
        self.objects = Objects(LocalStore(self.folder, mkdir=True), over=0)

    def keys(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def age(self) -> None:
        """By two days."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 2 * 86_400))


@pytest.fixture(scope="module")
async def running(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """All topics are read, so other tests' are better elsewhere."""
    return await (await Services.make(serve, new_database)).start()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
async def keeping(running: Running, store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(running.url, objects=store.objects) as client:
        yield client


async def sweep(running: Running, store: Store, *, remove: bool = True, key: str | None = None) -> Collected:
    def work() -> Collected:
        with Client(running.url, key) as client:
            return collect(client, store.objects, older_than=DAY, remove=remove, tell=lambda *_: None)

    return await asyncio.to_thread(work)


async def test_what_any_job_refers_to_stays(
    running: Running, store: Store, keeping: AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ready, scheduled, blocked, leased, failed, a dead letter, a dead letter in a log, done and replayable. Some at a
    time."""
    monkeypatch.setattr("holdfast._garbage.AT_ONCE", 5)
    dead, log, done, failing, logged = (f"{topic}.{name}" for name in ("dead", "log", "done", "failing", "logged"))
    settings = {
        topic: TopicConfig(dead_letter=dead),
        log: TopicConfig(type="log"),
        done: TopicConfig(replayable=True),
        failing: TopicConfig(on_exhausted="fail"),
        logged: TopicConfig(dead_letter=log),
    }
    for name, config in settings.items():
        await keeping.topic(name).put(config)
    for name, verb in ((topic, "fail"), (failing, "fail"), (logged, "fail"), (done, "ack"), (topic, "")):
        place = keeping.topic(name)
        await place.enqueue(f"{name} {verb}")
        [job] = (await place.claim(lease_ms=600_000)).jobs
        if verb:
            await getattr(place, verb)(job)
    queue = keeping.topic(topic)
    await queue.enqueue("ready")
    await queue.enqueue("scheduled", delay_ms=6_000_000)
    for n in range(2):
        await queue.enqueue(f"blocked {n}", group="g")
    referred = store.keys()
    assert len(referred) == 9
    for n in range(3):
        await store.objects.put_async("mail", f"garbage {n}")
    store.age()
    await store.objects.put_async("mail", "young")
    (store.folder / "holdfast/mail/of-another.txt").write_text("not ours")
    (store.folder / "elsewhere.txt").write_text("not ours")
    os.utime(store.folder / "holdfast/mail/of-another.txt", (0, 0))
    before = store.keys()
    found = await sweep(running, store, remove=False)
    assert (found.objects, found.young, found.kept, found.garbage, found.removed) == (13, 1, 9, 3, False)
    assert store.keys() == before
    found = await sweep(running, store)
    assert (found.kept, found.garbage, found.bytes, found.removed) == (9, 3, 3 * len('"garbage 0"'), True)
    assert referred < store.keys()
    assert len(store.keys()) == 9 + 1 + 2
    # And what is gone from the jobs is gone from the store, once it is old.
    for name in (*settings, dead):
        await keeping.topic(name).delete()
    store.age()
    assert (await sweep(running, store)).garbage == 10


async def test_a_job_that_moves_while_jobs_are_read_keeps_its_object(
    running: Running, store: Store, keeping: AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a topic that is yet to be read to one that was."""
    first, dead = f"a-{topic}", f"b-{topic}"
    queue = keeping.topic(first)
    await queue.put(TopicConfig(dead_letter=dead))
    await queue.enqueue("moves")
    [job] = (await queue.claim()).jobs
    await queue.fail(job)
    store.age()
    moved = False

    def payloads(client: Client, place: Any) -> Any:
        nonlocal moved
        yield from _payloads(client, place)
        if place.name == first and not moved:
            moved = True
            client.topic(dead).requeue([client.topic(dead).jobs().page().items[0].seq])
            while not client.topic(first).jobs().page().items:
                pass

    monkeypatch.setattr("holdfast._garbage._payloads", payloads)
    found = await sweep(running, store)
    assert moved
    assert (found.kept, found.garbage) == (1, 0)


async def test_whoever_does_not_see_all_topics_removes_nothing(
    serve: Serve, new_database: Callable[[], Awaitable[str]], store: Store
) -> None:
    service = await (await Services.make(serve, new_database)).start()
    async with AsyncClient(service.url) as client:
        root = await client.keys.make("root", ALL)
    async with AsyncClient(service.url, root.secret) as client:
        keys = [await client.keys.make("some", ALL, prefixes=["mail"]), await client.keys.make("reads", ["read"])]
        keys.append(await client.keys.make("admin", ["admin"]))
        blindfold = await client.keys.make("sees no payloads", ALL, hide_payloads=True)
        await client.topic("mail").put()
        await client.topic("mail").enqueue(1)
    await store.objects.put_async("mail", "garbage")
    store.age()
    with pytest.raises(errors.ObjectError, match="jobs refer to: Payloads are hidden"):
        await sweep(service, store, key=blindfold.secret)
    for key in keys:
        with pytest.raises(errors.Forbidden):
            await sweep(service, store, key=key.secret)
    assert len(store.keys()) == 1
    assert (await sweep(service, store, key=root.secret)).garbage == 1
    with Client(service.url, root.secret) as sync, pytest.raises(ValueError, match="younger than an hour"):
        collect(sync, store.objects, older_than=timedelta(minutes=59), remove=True, tell=lambda *_: None)


async def test_the_command(
    running: Running, store: Store, keeping: AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keeping.topic(topic).put()
    await keeping.topic(topic).enqueue("kept")
    await store.objects.put_async("mail", "garbage")
    store.age()
    cli = Cli(running.url)
    words = ("objects", "gc", f"file://{store.folder}")
    counts = {"objects": 2, "young": 0, "kept": 1, "garbage": 1, "bytes": 9}
    assert (await cli(*words, "--json")).object == {**counts, "removed": False}
    assert "1 with 9 bytes were deleted" in (await cli(*words, "--older-than", "36h", "--remove")).out
    assert len(store.keys()) == 1

    def unreadable(*_: Any, **__: Any) -> Any:
        raise PermissionError("not for you, https://key:hunter2@store/x?sig=hunter2 says\n{uri: hunter2}")

    monkeypatch.setattr(obstore, "list", unreadable)
    away = await cli(*words, code=1)
    assert "the store can't list objects: not for you, https://store/x says." in away.err
    assert "hunter2" not in away.both
    for wrong in (("--older-than", "1m"), ("--prefix", "../x")):
        await cli(*words, *wrong, code=2)


@pytest.mark.parametrize(
    "url",
    [
        "az://key:hunter2@payloads",
        "s4://key:hun/ter2@payloads?sig=hunter2",
        "//key:hun ter2@payloads",
        "payloads?hunter2",
    ],
)
async def test_a_store_that_is_none_is_named_without_its_secrets(url: str) -> None:
    ran = await Cli("http://127.0.0.1:9")("objects", "gc", url, "--json", code=2)
    error = json.loads(ran.err)["error"]
    assert error["code"] == "bad_store"
    assert error["message"].partition(" ")[0].removeprefix("//") == "payloads"
    assert "ter2" not in ran.both
