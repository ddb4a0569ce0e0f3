"""A job's command enqueues the same once more, whatever it holds, when bash runs it as it stands."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.features.jobs import job_parts
from app.kernel import jobs as shown
from app.kernel.jobs import JobPlace
from app.kernel.model import Seq
from tests.api.dialect import Body, Topic, accepted
from tests.conftest import Running

HOSTILE = "'; touch hacked; echo '\"$(touch hacked)`touch hacked`!!\\ \n\t\r\x1b[2J\u202e\u00a0é"
RECORDS: list[Body] = [
    {"data": {"say": HOSTILE, "n": 12345678901234567890123}, "tag": HOSTILE.replace("\n", ""), "priority": 7},
    {"data": [1, "a"], "meta": {"trace": "x'y", "n": 1}, "tenant": "o'brien", "group": "g\ttab", "max_deliveries": 3},
    {"data": HOSTILE, "content_type": "text/plain"},
    {"data": {"$base64": "AP8nIg=="}, "content_type": "image/png"},
    {"data": {"$base64": "eyIkYmFzZTY0IjoiQVA4PSJ9"}, "content_type": "application/json"},  # JSON that looks like bytes
]


@given(st.text(max_size=60).filter(lambda text: "\0" not in text))
@example(HOSTILE)
@settings(max_examples=25, deadline=None)
def test_a_word_for_bash_is_what_it_says(text: str) -> None:
    said = subprocess.run(
        ["bash", "-c", f"printf %s {job_parts.quote(text)}"], capture_output=True, check=True, timeout=30
    )
    assert said.stdout == text.encode()


@pytest.mark.parametrize("place", range(len(RECORDS)))
async def test_the_command_makes_its_twin(
    http: httpx.AsyncClient, service: Running, topic: str, tmp_path: Path, place: int
) -> None:
    queue = Topic(http, topic)
    await queue.put()
    (seq,) = (await queue.append(RECORDS[place]))["seqs"]
    db = service.context.pools.rest
    policy = await service.context.policies.queue(topic)
    (job,) = await shown.show(db, [JobPlace(topic, policy.topic.id, Seq(seq))])
    command = job_parts.clone_command(service.url, topic, job, guarded=False)
    assert command is not None
    ran = await asyncio.create_subprocess_exec(
        "bash", "-c", command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    said, _ = await ran.communicate()
    assert list(tmp_path.iterdir()) == []
    (twin,) = json.loads(said)["seqs"]
    first, second = [accepted(await http.get(f"{queue.path}/jobs/{one}")) for one in (seq, twin)]
    assert twin != seq
    for field in ("seq", "state", "created_at", "updated_at", "performance"):
        first.pop(field)
        second.pop(field)
    assert second == first
    (copy,) = await shown.show(db, [JobPlace(topic, policy.topic.id, Seq(twin))])
    assert (copy.payload, copy.content_type, copy.metadata) == (job.payload, job.content_type, job.metadata)


async def test_what_can_be_no_command_is_none(http: httpx.AsyncClient, service: Running, topic: str) -> None:
    queue = Topic(http, topic)
    await queue.put()
    await queue.add(1)
    policy = await service.context.policies.queue(topic)
    (job,) = await shown.show(service.context.pools.rest, [JobPlace(topic, policy.topic.id, Seq(1))])
    for payload in (b'"' + b"x" * 100_000 + b'"', b'"\xff"'):
        assert job_parts.clone_command(service.url, topic, replace(job, payload=payload), guarded=False) is None


def test_plain_words_stay_plain() -> None:
    assert job_parts.quote("a b") == "'a b'"
    assert job_parts.quote("a\nb'") == "$'a\\x0ab\\''"
