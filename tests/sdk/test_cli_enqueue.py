"""`holdfast enqueue`: files that are taken whole, or up to where they are good, and once. `holdfast import`: a queue
file of jqueue's becomes a queue."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncTopic, BrokerQueue
from holdfast._cli.session import Exit
from tests.conftest import Running
from tests.sdk.cli import Cli
from tests.sdk.proxy import Proxy


async def data_of(queue: AsyncTopic) -> list[object]:
    return [job.data async for job in queue.jobs(order="oldest", limit=1_000)]


async def test_files_and_stdin(cli: Cli, queue: AsyncTopic, tmp_path: Path) -> None:
    one, two = tmp_path / "one.ndjson", tmp_path / "two.ndjson"
    one.write_text('{"n": 1}\n\n"zwei"\r\n3')  # a blank line, a line of Windows', and no end to the last
    two.write_text("4\n")
    assert (await cli("enqueue", queue.name, one, "-", two, stdin="3.5\n")).out == "5 written.\n"
    assert await data_of(queue) == [{"n": 1}, "zwei", 3, 3.5, 4]
    assert "There is no file" in (await cli("enqueue", queue.name, tmp_path / "none", code=Exit.USAGE)).err
    told = await cli("enqueue", queue.name, "--batch", 2, "--json", stdin="5\n6\n7\n")
    first, second, whole = told.objects
    assert first.items() >= {"source": "-", "first_line": 1, "last_line": 2, "count": 2}.items()
    assert second.items() >= {"first_line": 3, "last_line": 3, "count": 1}.items()
    assert whole == {"taken": 3, "deduped": 0}


async def test_what_a_line_is(cli: Cli, queue: AsyncTopic) -> None:
    await cli("enqueue", queue.name, "--lines", "text", stdin=" not json \n")
    record = {"data": {"$base64": "AAE="}, "tag": "raw", "priority": 2, "run_at": "2100-01-01T00:00:00Z"}
    await cli("enqueue", queue.name, "--lines", "record", stdin=json.dumps(record))
    first, second = [job async for job in queue.jobs(order="oldest")]
    assert first.data == " not json "
    assert (second.data, second.tag, second.priority, second.state) == (b"\0\1", "raw", 2, "scheduled")
    for line, why in (
        ('{"data": 1, "colour": "red"}', "a record has no field colour"),
        ('{"data": NaN}', "NaN is not a JSON number"),
        ('{"data": 1e999}', "1e999 is not a JSON number"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "a record must be an object with data"),
        ('{"data": 1, "run_at": "soon"}', "'soon' is not a time. Write it like "),
        ('{"data": 1, "run_at": ["2100-01-01T00:00:00Z"]}', "is not a time. Write it like "),
        ('{"data": 1, "run_at": "2100-01-01T00:00:00"}', "has no time zone. Add Z"),
        ('{"data": 1, "meta": [1]}', "meta must be an object"),
        ('{"data": ["\\uD83D\\uDE00", "\\ud83d"]}', "'\\ud83d' is not valid Unicode"),
    ):
        said = (await cli("enqueue", queue.name, "--lines", "record", stdin="\n" + line, code=Exit.USAGE)).err
        assert why in said
        assert "error: bad_line: stdin, line 2, where the file ends: " in said
    said = (await cli("enqueue", queue.name, stdin='1\n"\\ud800"\n', code=Exit.USAGE)).err
    assert "error: bad_line: stdin, line 2: '\\ud800' is not valid Unicode" in said


LINES = [json.dumps({"n": n}) for n in range(11)]


@pytest.mark.parametrize("first_batch", [2, 20])
async def test_a_file_that_has_grown_since(cli: Cli, queue: AsyncTopic, tmp_path: Path, first_batch: int) -> None:
    """Whatever the batches of then were, repeated over more of the file nothing is taken twice, and all once."""
    file = tmp_path / "jobs.ndjson"
    before = 0
    for there, end, batch in ((5, "\n", first_batch), (5, "\n\n", 2), (8, "", 4), (11, "\n", 3), (11, "", 100)):
        file.write_text("\n".join(LINES[:there]) + end)
        said = (await cli("enqueue", queue.name, file, "--run", "monday", "--batch", batch)).out
        assert said == f"{there} written{f', {before} of them already before' if before else ''}.\n"
        before = there
    assert await data_of(queue) == [json.loads(line) for line in LINES]


@pytest.mark.parametrize(
    ("before", "after", "jobs"),
    [
        # Cut within a number: what stood there was a line, too, and the whole one is another.
        ("1\n2\n3", "1\n2\n345\n6\n", [1, 2, 3, 345, 6]),
        # Another file of the same name.
        ("1\n2\n", "3\n4\n5\n", [1, 2, 3, 4, 5]),
    ],
)
async def test_no_line_of_another_file_is_lost(
    cli: Cli, queue: AsyncTopic, tmp_path: Path, *, before: str, after: str, jobs: list[int]
) -> None:
    file = tmp_path / "jobs.ndjson"
    for text in (before, after):
        file.write_text(text)
        await cli("enqueue", queue.name, file, "--run", "nightly")
    assert await data_of(queue) == jobs


async def test_interrupted_while_the_service_answers(cli: Cli, queue: AsyncTopic, proxy: Proxy) -> None:
    """The service has taken the second batch, and nobody was told: what it says to go on with makes that good."""
    lines = b"".join(b"%d\n" % n for n in range(10))
    process = Cli(proxy.url).process("enqueue", queue.name, "--batch", 4, "--json")
    assert process.stdin
    assert process.stdout
    process.stdin.write(lines[:8])
    process.stdin.flush()
    assert b'"last_line": 4' in await asyncio.to_thread(process.stdout.readline)
    proxy.hold(f"POST {queue.name}")
    process.stdin.write(lines[8:])
    process.stdin.flush()
    async with asyncio.timeout(30):
        while len(await data_of(queue)) < 8:
            await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.to_thread(process.communicate, None, 30)
    assert process.returncode == Exit.INTERRUPTED
    stopped = json.loads(err)["stopped"]
    assert (stopped["line"], stopped["taken"]) == (5, 4)

    words = ("--run", stopped["run"], "--batch", 4, "--from-line", stopped["line"])
    assert (
        await cli("enqueue", queue.name, *words, stdin=lines.decode())
    ).out == "6 written, 4 of them already before.\n"
    assert await data_of(queue) == list(range(10))


async def test_a_service_that_loses_answers(queue: AsyncTopic, proxy: Proxy) -> None:
    proxy.lose(f"POST {queue.name}")
    assert (await Cli(proxy.url)("enqueue", queue.name, stdin="1\n2\n")).out.startswith("2 written")
    assert await data_of(queue) == [1, 2]
    assert proxy.count(f"POST {queue.name}") >= 2


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


async def test_jobs_of_jqueue_are_taken_once_and_come_as_they_would(
    cli: Cli, service: Running, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "queue.json"
    file.write_text(json.dumps({"version": 3, "jobs": JOBS}, indent=2))
    assert (await cli("import", topic, file)).out == "3 written; 1 dead jobs were left out.\n"
    file.write_text(json.dumps({"version": 4, "jobs": [*JOBS, job(5, entrypoint="resize_image")]}))
    told = await cli("import", topic, file, "--json")
    assert told.object == {"taken": 4, "deduped": 3, "dead": 1}
    async with BrokerQueue(service.url, topic) as queue:
        mails = [one for _ in range(2) for one in await queue.dequeue("send_email")]
        images = await queue.dequeue("resize_image", batch_size=9)
        assert await queue.dequeue(batch_size=9) == []
    ada, odd = b'{"to": "user@example.com"}', b"\xfb\xff\xfe"
    assert [(one.priority, one.payload) for one in mails] == [(-3, odd), (5, ada)]
    assert [one.payload for one in images] == [odd, ada]


async def test_of_a_file_that_is_not_jqueues_nothing_is_taken(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "queue.json"
    assert "No such file" in (await cli("import", topic, file, code=Exit.USAGE)).err
    for text, why in (
        ("", "Expecting value"),
        ("[1]", "it is not an object with jobs"),
        ('{"version": 0}', "it is not an object with jobs"),
        (json.dumps({"jobs": [job(1), {"id": "x"}]}), "job 2 has no 'status'"),
        (json.dumps({"jobs": [job(1, payload="...")]}), "job 1 is not valid"),
        (json.dumps({"jobs": [job(1, status="lost")]}), "job 1 is not valid: 'lost' is not a valid JobStatus"),
        (json.dumps({"jobs": [job(1, priority=1 << 20)]}), "job 1 is not valid: priority must be "),
        (json.dumps({"jobs": [job(1, id=7)]}), "job 1 is not valid: its id is not a string"),
        (json.dumps({"jobs": [job(1, entrypoint="")]}), "job 1 is not valid: entrypoint must have "),
        (json.dumps({"jobs": [7]}), "job 1 is not valid"),
    ):
        file.write_text(text)
        refused = await cli("import", topic, file, code=Exit.USAGE)
        assert refused.err.startswith(f"error: bad_file: {file} is not a jqueue file: ")
        assert why in refused.err
    assert not (await cli("topics", "list", "--prefix", topic, "--json")).out
