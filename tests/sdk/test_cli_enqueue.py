"""`holdfast enqueue`: files that are taken whole, or up to where they are good, and once."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from pathlib import Path

import pytest

from holdfast import AsyncTopic
from holdfast._cli.session import Exit
from tests.conftest import Running
from tests.sdk.cli import Cli
from tests.sdk.proxy import Proxy


@pytest.fixture
def cli(service: Running) -> Cli:
    return Cli(service.url)


async def data_of(queue: AsyncTopic) -> list[object]:
    return [job.data async for job in queue.jobs(order="oldest", limit=1_000)]


def go_on(err: str) -> list[str]:
    """The command that it says to go on with, without its first word."""
    return shlex.split(err.split("Go on with: ")[1].splitlines()[0])[1:]


async def test_files_and_stdin(cli: Cli, queue: AsyncTopic, tmp_path: Path) -> None:
    one, two = tmp_path / "one.ndjson", tmp_path / "two.ndjson"
    one.write_text('{"n": 1}\n\n"zwei"\r\n3')  # a blank line, a line of Windows', and no end to the last
    two.write_text("4\n")
    assert (await cli("enqueue", queue.name, one, "-", two, stdin="3.5\n")).out == "5 taken.\n"
    assert await data_of(queue) == [{"n": 1}, "zwei", 3, 3.5, 4]
    assert "There is no file" in (await cli("enqueue", queue.name, tmp_path / "none", code=Exit.USAGE)).err
    told = await cli("enqueue", queue.name, "--batch", 2, "--json", stdin="5\n6\n7\n")
    batches = [
        {"source": "-", "first_line": 1, "last_line": 2, "count": 2},
        {"first_line": 3, "last_line": 3, "count": 1},
    ]
    assert [shown | batch == shown for shown, batch in zip(told.objects, batches, strict=False)] == [True, True]
    assert told.objects[-1] == {"taken": 3, "deduped": 0}


async def test_what_a_line_is(cli: Cli, queue: AsyncTopic) -> None:
    await cli("enqueue", queue.name, "--lines", "text", stdin=" not json \n")
    record = {"data": {"$base64": "AAE="}, "tag": "raw", "priority": 2, "run_at": "2100-01-01T00:00:00Z"}
    await cli("enqueue", queue.name, "--lines", "record", stdin=json.dumps(record))
    first, second = [job async for job in queue.jobs(order="oldest")]
    assert first.data == " not json "
    assert (second.data, second.tag, second.priority, second.state) == (b"\0\1", "raw", 2, "scheduled")
    for line, why in (
        ('{"data": 1, "colour": "red"}', "a record has no colour"),
        ('{"data": NaN}', "NaN is no number"),
        ('{"data": 1e999}', "1e999 is no number"),
        ("[" * 100_000, "nested too deep"),
        ("[1]", "a record is an object that has data"),
        ('{"data": 1, "run_at": "soon"}', "'soon' is no time, such as "),
        ('{"data": 1, "run_at": 1798106400}', "1798106400 is no time, such as "),
        ('{"data": 1, "run_at": ""}', "'' is no time, such as "),
        ('{"data": 1, "run_at": ["2100-01-01T00:00:00Z"]}', "is no time, such as "),
        ('{"data": 1, "run_at": "2100-01-01T00:00:00"}', "has no time zone: end it with Z"),
        ('{"data": 1, "meta": [1]}', "meta is an object"),
        ('{"data": ["\\uD83D\\uDE00", "\\ud83d"]}', "'\\ud83d' is in no Unicode text"),
    ):
        said = (await cli("enqueue", queue.name, "--lines", "record", stdin="\n" + line, code=Exit.USAGE)).err
        assert why in said
        assert "error: bad_line: stdin, line 2, where the file ends: " in said
    said = (await cli("enqueue", queue.name, stdin='1\n"\\ud800"\n', code=Exit.USAGE)).err
    assert "error: bad_line: stdin, line 2: '\\ud800' is in no Unicode text" in said


async def test_a_file_that_was_cut_off(cli: Cli, queue: AsyncTopic, tmp_path: Path) -> None:
    """What is good of it is taken, batch by batch; repeated once it is mended, nothing is taken twice."""
    file = tmp_path / "jobs.ndjson"
    lines = [json.dumps({"n": n}) for n in range(7)]
    file.write_text("\n".join(lines)[:-3])
    words = ("enqueue", queue.name, file, "--batch", 2)
    stopped = await cli.run(*words, "--run", "monday", code=Exit.USAGE)
    assert f"Stopped before line 7 of {file}: 6 taken." in stopped.err
    assert f"error: bad_line: {file}, line 7, where the file ends: " in stopped.err
    assert go_on(stopped.err)[3:] == ["--run", "monday", "--batch", "2", "--from-line", "7"]
    file.write_text("\n".join(lines))
    assert (await cli(*words, "--run", "monday")).out == "7 taken, 6 of them before.\n"
    assert await data_of(queue) == [json.loads(line) for line in lines]


LINES = [json.dumps({"n": n}) for n in range(11)]


@pytest.mark.parametrize("first_batch", [2, 3, 20])
async def test_a_file_that_has_grown_since(cli: Cli, queue: AsyncTopic, tmp_path: Path, first_batch: int) -> None:
    """Whatever the batches of then were, repeated over more of the file nothing is taken twice, and all once."""
    file = tmp_path / "jobs.ndjson"
    before = 0
    for there, end, batch in ((5, "\n", first_batch), (5, "\n\n", 2), (8, "", 4), (11, "\n", 3), (11, "", 100)):
        file.write_text("\n".join(LINES[:there]) + end)
        said = (await cli("enqueue", queue.name, file, "--run", "monday", "--batch", batch)).out
        assert said == f"{there} taken{f', {before} of them before' if before else ''}.\n"
        before = there
    assert await data_of(queue) == [json.loads(line) for line in LINES]


async def test_a_file_that_was_cut_within_a_number(cli: Cli, queue: AsyncTopic, tmp_path: Path) -> None:
    """What stood there was a line, too. The whole one is another: it is not lost for that."""
    file = tmp_path / "jobs.ndjson"
    for text in ("1\n2\n3", "1\n2\n345\n6\n"):
        file.write_text(text)
        await cli("enqueue", queue.name, file, "--run", "monday")
    assert await data_of(queue) == [1, 2, 3, 345, 6]


async def test_another_file_of_the_same_name(cli: Cli, queue: AsyncTopic, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    for text in ("1\n2\n", "3\n4\n5\n"):
        file.write_text(text)
        await cli("enqueue", queue.name, file, "--run", "nightly")
    assert await data_of(queue) == [1, 2, 3, 4, 5]


async def test_interrupted_while_the_service_answers(cli: Cli, queue: AsyncTopic, proxy: Proxy) -> None:
    """The service has taken the second batch, and nobody was told: what it says to go on with makes that good."""
    lines = b"".join(b"%d\n" % n for n in range(10))
    process = Cli(proxy.url).process("enqueue", queue.name, "--batch", 4, "--json")
    assert process.stdin
    assert process.stdout
    process.stdin.write(lines[:8])
    process.stdin.flush()
    assert b'"last_line": 4' in await asyncio.to_thread(process.stdout.readline)
    proxy.delay(f"POST {queue.name}", 60)
    process.stdin.write(lines[8:])
    process.stdin.flush()
    while len(await data_of(queue)) < 8:
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.to_thread(process.communicate, None, 30)
    assert process.returncode == Exit.INTERRUPTED
    stopped = json.loads(err)["stopped"]
    assert (stopped["line"], stopped["taken"]) == (5, 4)

    words = ("--run", stopped["run"], "--batch", 4, "--from-line", stopped["line"])
    assert (await cli("enqueue", queue.name, *words, stdin=lines.decode())).out == "6 taken, 4 of them before.\n"
    assert await data_of(queue) == list(range(10))


async def test_a_service_that_loses_answers(queue: AsyncTopic, proxy: Proxy) -> None:
    proxy.lose(f"POST {queue.name}")
    assert (await Cli(proxy.url)("enqueue", queue.name, stdin="1\n2\n")).out.startswith("2 taken")
    assert await data_of(queue) == [1, 2]
    assert proxy.count(f"POST {queue.name}") >= 2
