"""`holdfast import`: a queue file of jqueue's becomes a queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import BrokerQueue
from holdfast._cli.session import Exit
from tests.conftest import Running
from tests.sdk.cli import Cli


@pytest.fixture
def cli(service: Running) -> Cli:
    return Cli(service.url)


def job(number: int, **more: Any) -> dict[str, Any]:
    """As jqueue writes it."""
    return {
        "id": f"550e8400-e29b-41d4-a716-{number:012}",
        "entrypoint": "send_email",
        "payload": "eyJ0byI6ICJ1c2VyQGV4YW1wbGUuY29tIn0=",
        "status": "queued",
        "priority": 0,
        "created_at": "2024-01-01T12:00:00+00:00",
        "heartbeat_at": None,
        **more,
    }


JOBS = [
    job(1, priority=5),
    job(2, priority=-3, payload="-__-"),
    job(3, entrypoint="resize_image", status="in_progress", heartbeat_at="2024-01-01T12:00:45+00:00", payload="+//+"),
    job(4, status="dead"),
]


async def test_its_jobs_are_taken_once_and_come_as_they_would(
    cli: Cli, service: Running, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "queue.json"
    file.write_text(json.dumps({"version": 3, "jobs": JOBS}, indent=2))
    assert (await cli("import", topic, file)).out == "3 taken; 1 dead ones were left out.\n"
    file.write_text(json.dumps({"version": 4, "jobs": [*JOBS, job(5, entrypoint="resize_image")]}))
    told = await cli("import", topic, file, "--json")
    assert told.object == {"taken": 4, "deduped": 3, "dead": 1}
    async with BrokerQueue(service.url, topic) as queue:
        mails = [one for _ in range(2) for one in await queue.dequeue("send_email")]
        images = await queue.dequeue("resize_image", batch_size=9)
        assert await queue.dequeue(batch_size=9) == []
    assert [(one.priority, one.payload) for one in mails] == [
        (-3, b"\xfb\xff\xfe"),
        (5, b'{"to": "user@example.com"}'),
    ]
    assert [one.payload for one in images] == [b"\xfb\xff\xfe", b'{"to": "user@example.com"}']


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[1]", "it is no object with jobs"),
        ('{"version": 0}', "it is no object with jobs"),
        (json.dumps({"jobs": [job(1), {"id": "x"}]}), "job 2 has no 'status'"),
        (json.dumps({"jobs": [job(1, payload="...")]}), "job 1 is none"),
        (json.dumps({"jobs": [job(1, status="lost")]}), "job 1 is none: 'lost' is not a valid JobStatus"),
        (json.dumps({"jobs": [job(1, priority=1 << 20)]}), "job 1 is none: a priority is "),
        (json.dumps({"jobs": [job(1, id=7)]}), "job 1 is none: its id is no text"),
        (json.dumps({"jobs": [job(1, entrypoint="")]}), "job 1 is none: an entrypoint has "),
        (json.dumps({"jobs": [7]}), "job 1 is none"),
    ],
)
async def test_of_what_is_no_such_file_nothing_is_taken(
    cli: Cli, topic: str, tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "queue.json"
    assert "No such file" in (await cli("import", topic, file, code=Exit.USAGE)).err
    file.write_text(text)
    refused = await cli("import", topic, file, code=Exit.USAGE)
    assert refused.err.startswith(f"error: bad_file: {file} is no queue of jqueue's: ")
    assert why in refused.err
    assert not (await cli("topics", "list", "--prefix", topic, "--json")).out
