"""Scripts of docs/migrating copy jobs out of a real Redis, from keys of the same layout as the other queue's."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import AsyncClient, TopicConfig
from tests.conftest import Running
from tests.processes import until
from tests.sdk.pages import ROOT, SOURCE
from tests.topics.test_bus import Redis

PAGES = sorted((ROOT / "docs/migrating").glob("*.md"))
SHARED = "jqueue-queue-ti-topics"  # a page on three queues: a section each
FORM = ["What maps", "What you gain", "What you lose", "Moving step by step", "Script", "Sources"]
SOON = time.time() + 3600


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_have_one_form(page: Path) -> None:
    text = page.read_text()
    sections = [text]
    if page.stem == SHARED:
        sections = [section.replace("\n### ", "\n## ") for section in text.split("\n## From ")[1:]]
        assert len(sections) == 3
    for section in sections:
        assert re.findall(r"^## (.+)$", section, re.MULTILINE) == FORM
        script = section.partition("\n## Script\n")[2]
        assert ("\n```" in script) + ("\n    holdfast" in script) + ("There is none" in script) == 1
    assert [line for line in text.splitlines() if len(line) > 120] == []


@pytest.fixture(scope="module")
def old() -> Iterator[tuple[str, redis.Redis]]:
    """A Redis, and its address."""
    server = Redis()
    server.start()
    client = redis.Redis.from_url(server.url)
    until(lambda: answers(client), 10)
    yield server.url, client
    server.kill()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def celery(old: redis.Redis) -> None:
    for i, task in enumerate(["shop.send", "shop.other", "shop.send"]):
        body = base64.b64encode(json.dumps([[i], {"to": "ada"}, {"callbacks": None}]).encode()).decode()
        eta = "2090-01-31T09:00:00+00:00" if i == 2 else None
        headers = {"lang": "py", "task": task, "id": f"celery-{i}", "eta": eta}
        properties = {"body_encoding": "base64", "priority": 0}
        message = {"body": body, "content-type": "application/json", "headers": headers, "properties": properties}
        old.lpush("celery", json.dumps(message))


def sidekiq(old: redis.Redis) -> None:
    for i, name in enumerate(["HardJob", "OtherJob"]):
        old.lpush("queue:default", json.dumps({"class": name, "args": [i], "jid": f"jid{i}", "queue": "default"}))
    later = {"class": "HardJob", "args": [2], "jid": "jid2", "queue": "default"}
    old.zadd("schedule", {json.dumps(later): SOON})


def bullmq(old: redis.Redis) -> None:
    for id, priority in (("1", 0), ("2", 3), ("3", 0)):
        job = {"name": "welcome", "data": json.dumps({"n": id}), "opts": "{}", "timestamp": 1, "priority": priority}
        old.hset(f"bull:mail:{id}", mapping={key: str(value) for key, value in job.items()})
    old.lpush("bull:mail:wait", "1")
    old.zadd("bull:mail:prioritized", {"2": 3 * 2**32 + 1})
    old.zadd("bull:mail:delayed", {"3": int(SOON * 1000) * 4096 + 3})


def rq(old: redis.Redis) -> None:
    for i, name in enumerate(["shop.send", "shop.other", "shop.send"]):
        data = zlib.compress(pickle.dumps((name, None, (i,), {"to": "ada"})))
        old.hset(f"rq:job:{i}", mapping={"data": data, "origin": "mail", "status": "queued"})
    old.rpush("rq:queue:mail", "0", "1", "gone")
    old.zadd("rq:scheduled:mail", {"2": SOON})


def dramatiq(old: redis.Redis) -> None:
    for i, (queue, actor, options) in enumerate(
        [("default", "send_mail", {}), ("default", "other", {}), ("default.DQ", "send_mail", {"eta": int(SOON * 1000)})]
    ):
        message = {"queue_name": queue, "actor_name": actor, "args": [i], "kwargs": {"to": "ada"}, "options": options}
        old.hset(f"dramatiq:{queue}.msgs", f"redis-{i}", json.dumps(message | {"message_id": f"m{i}"}))
        old.rpush(f"dramatiq:{queue}", f"redis-{i}")


CALL = {"kwargs": {"to": "ada"}}


@pytest.mark.parametrize(
    ("fill", "topic", "copied"),
    [
        (celery, "receipts", [CALL | {"args": [0]}, CALL | {"args": [2]}]),
        (sidekiq, "HardJob", [[0], [2]]),
        (bullmq, "mail", [{"n": "1"}, {"n": "2"}, {"n": "3"}]),
        (rq, "mail", [CALL | {"args": [0]}, CALL | {"args": [2]}]),
        (dramatiq, "mail", [CALL | {"args": [0]}, CALL | {"args": [2]}]),
    ],
)
async def test_a_script_copies_jobs_once(
    service: Running, old: tuple[str, redis.Redis], fill: Any, topic: str, copied: list[Any]
) -> None:
    url, client = old
    client.flushall()
    fill(client)
    async with AsyncClient(service.url) as holdfast:
        made = holdfast.topic(topic)
        await made.put(TopicConfig(dedupe_window_ms=604_800_000))
        try:
            for _ in range(2):
                printed = await output_of(fill.__name__, service.url, url)
                assert re.fullmatch(rf"{len(copied)} (of \d )?copied", printed)
            jobs = [job async for job in made.jobs(order="oldest")]
        finally:
            await made.delete()
    assert [job.data for job in jobs] == copied
    assert [job.state for job in jobs] == ["ready"] * (len(copied) - 1) + ["scheduled"]


async def output_of(page: str, url: str, redis_url: str) -> str:
    text = (ROOT / f"docs/migrating/{page}.md").read_text().partition("\n## Script\n")[2]
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    env = os.environ | {"HOLDFAST_URL": url, "REDIS_URL": redis_url, "PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", code]
    ran = await asyncio.to_thread(
        subprocess.run, command, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()
