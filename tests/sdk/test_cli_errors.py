"""How commands end that go wrong or are interrupted, as a stranger reads it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import typer
from pydantic import SecretStr

from app.settings import Settings
from holdfast import AsyncClient, AsyncTopic
from holdfast._cli.output import Output
from holdfast._cli.session import Exit, ending
from holdfast.errors import status_error
from tests.api.keyring import Services
from tests.conftest import Running
from tests.processes import until
from tests.sdk.cli import Cli, command, environment
from tests.sdk.conftest import Serve


async def test_a_service_that_is_not_there_and_a_password_in_its_address(
    service: Running, queue: AsyncTopic, tmp_path: Path
) -> None:
    """The password is never shown: not by what works, nor by errors, nor in the log of a worker."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        away = f"127.0.0.1:{nobody.getsockname()[1]}"
    refused = await Cli(f"http://ada:pass-word@{away}")("topics", "list", code=Exit.AWAY)
    assert re.fullmatch(rf"error: unreachable: .*refused\. Hint: HOLDFAST_URL is http://{away}\.\n", refused.err)
    shown = [refused.both, (await Cli(f"http://ada:pass-word@{away}")("topics", "list", "--json", code=Exit.AWAY)).both]
    url = f"http://ada:pass-word@{service.url.removeprefix('http://')}"
    shown.append((await Cli(url)("explain", "nowhere", code=Exit.NOTHING)).both)
    shown.append((await Cli(url)("bench", "--jobs", 10, "--not-durable")).both)
    assert f"of {service.url}." in shown[-1]
    for wrong in ("localhost:8080", "ada:pass-word@host", "http://ada:pass-word@host:port", "http://ada:pass-word@"):
        said = await Cli(wrong)("topics", "list", code=Exit.USAGE)
        assert said.err.startswith("error: bad_url: HOLDFAST_URL: the service's address must be http://host:port")
        shown.append(said.both)

    (tmp_path / "tasks.py").write_text(
        "import logging, os\nfrom holdfast import Queue\nlogging.basicConfig(level=logging.DEBUG)\nqueue = Queue()\n"
        "@queue.handler(os.environ['HOLDFAST_TEST_TOPIC'])\ndef handler(_): raise ValueError('tell me of it')\n"
    )
    env = environment({"HOLDFAST_URL": url, "HOLDFAST_TEST_TOPIC": queue.name})
    await queue.enqueue(1)
    log = tmp_path / "log"
    with log.open("wb") as into:
        worker = subprocess.Popen(command("worker", "tasks:queue"), cwd=tmp_path, env=env, stderr=into)
    try:
        await asyncio.to_thread(until, lambda: "tell me of it" in log.read_text(), 60, or_show=log.read_text)
    finally:
        worker.terminate()
        await asyncio.to_thread(worker.wait, 60)
    shown.append(log.read_text())
    assert [text for text in shown if "pass-word" in text] == []


async def test_a_service_that_wants_a_key(
    serve: Serve, new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    service = await (await Services.make(serve, new_database)).start()
    cli = Cli(service.url)
    made = (await cli("keys", "make", "ops", "--scopes", "read+write+delete+admin")).out.strip()
    none = await cli("topics", "list", code=Exit.REFUSED)
    assert none.err.endswith(". No key was sent: set HOLDFAST_API_KEY, or pass api_key.\n")
    wrong = await Cli(service.url, HOLDFAST_API_KEY="x")("topics", "list", code=Exit.REFUSED)
    assert wrong.err.endswith(". An API key was sent and rejected.\n")

    ops = Cli(service.url, HOLDFAST_API_KEY=made)
    reader = (await ops("keys", "make", "reader", "--scopes", "read", "--prefix", "mail", "--json")).object
    assert (await ops("keys", "show", reader["id"], "--json")).object["prefixes"] == ["mail"]
    weak = Cli(service.url, HOLDFAST_API_KEY=reader["secret"])
    assert (await weak("topics", "put", "mail", code=Exit.REFUSED)).err.startswith("error: forbidden: ")
    await ops("keys", "rotate", reader["id"], code=Exit.USAGE)
    rotated = await ops("keys", "rotate", reader["id"], "--grace", "1h")
    assert rotated.out.strip() != reader["secret"]
    assert "secret" not in (await ops("keys", "list")).out
    await ops("keys", "revoke", reader["id"], code=Exit.USAGE)
    assert (await ops("keys", "revoke", reader["id"], "--yes", "--json")).object["state"] == "revoked"
    assert (await weak("topics", "list", code=Exit.REFUSED)).err.startswith("error: unauthorized: ")
    assert "is not a scope" in (await ops("keys", "make", "x", "--scopes", "root", code=Exit.USAGE)).err

    (tmp_path / "tasks.py").write_text(
        "from holdfast import Queue\nqueue = Queue()\n@queue.handler\ndef mail(_): ...\n"
    )
    env = environment({"HOLDFAST_URL": service.url, "HOLDFAST_API_KEY": "wrong"})
    words = command("worker", "tasks:queue")
    ended = await asyncio.to_thread(subprocess.run, words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "The worker ends: 401 unauthorized: " in ended.stderr
    assert "An API key was sent and rejected." in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_reader_that_has_enough(cli: Cli, queue: AsyncTopic) -> None:
    await queue.enqueue_many(["x" * 1_000] * 500)
    process = cli.process("peek", queue.name, "-n", 500, "--json", stdin=subprocess.DEVNULL)
    assert process.stdout
    assert process.stderr
    assert b'"seq": 1' in await asyncio.to_thread(process.stdout.readline)
    process.stdout.close()
    assert await asyncio.to_thread(process.wait, 30) == Exit.BROKEN_PIPE
    assert process.stderr.read() == b""
    process.stderr.close()


async def interrupted(process: subprocess.Popen[bytes]) -> bytes:
    """What is left on stderr of a command that Ctrl-C ends."""
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.to_thread(process.communicate, None, 30)
    assert process.returncode == Exit.INTERRUPTED
    return err


async def test_tail_goes_on_through_a_restart_of_the_service_until_ctrl_c(database_url: str, topic: str) -> None:
    settings = Settings.model_validate({"database_url": SecretStr(database_url)})
    service = Running(settings)
    await service.start()
    async with AsyncClient(service.url) as client:
        queue = client.topic(topic)
        await queue.put()
        await queue.enqueue("before")
        process = Cli(service.url).process("tail", topic, "--after", 0, stdin=subprocess.DEVNULL)
        assert process.stdout
        assert process.stderr
        assert b'"before"' in await asyncio.to_thread(process.stdout.readline)
        await service.stop()
        assert b"Retrying until Ctrl-C" in await asyncio.to_thread(process.stderr.readline)
        again = Running(settings, port=int(service.url.rpartition(":")[2]))
        await again.start()
        await queue.enqueue("after")
        assert b'"after"' in await asyncio.to_thread(process.stdout.readline)
        assert await interrupted(process) == b"The service answers again.\n"
        await again.stop()


async def test_stats_go_on_until_ctrl_c(cli: Cli, queue: AsyncTopic) -> None:
    process = cli.process("stats", queue.name, "--watch", "--every", "50ms", "--json", stdin=subprocess.DEVNULL)
    assert process.stdout
    await queue.enqueue(1)
    while b'"ready": 1' not in await asyncio.to_thread(process.stdout.readline):
        pass
    assert await interrupted(process) == b""


async def test_a_bench_that_is_interrupted_leaves_nothing(cli: Cli, client: AsyncClient) -> None:
    process = cli.process("bench", "--jobs", 10_000_000, "--batch", 1, "--not-durable")
    assert process.stderr
    assert b"10000000 jobs" in await asyncio.to_thread(process.stderr.readline)
    async with asyncio.timeout(30):
        while not [one async for one in client.topics.list(prefix="holdfast-bench-") if one.count]:
            await asyncio.sleep(0.01)
    assert await interrupted(process) == b""
    assert [one.topic async for one in client.topics.list(prefix="holdfast-bench-")] == []


async def test_who_is_asked_first(cli: Cli, queue: AsyncTopic) -> None:
    """At a terminal a command that destroys asks, and goes by the answer."""
    for answer, code, there in (
        ("n\n", Exit.REFUSED, True),
        ("\x03", Exit.INTERRUPTED, True),
        ("y\n", Exit.DONE, False),
    ):
        ended = await asyncio.to_thread(at_a_terminal, cli, answer, "topics", "delete", queue.name)
        assert ended == code, answer
        listed = await cli("topics", "list", "--prefix", queue.name, "--json")
        assert bool(listed.objects) is there


def at_a_terminal(cli: Cli, answer: str, *words: str) -> int:
    """Run a command in a terminal of its own, and answer its question; its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command()[0], command(*words), environment(cli.env))
    said = b""
    try:
        while b"[y/N]" not in said:
            said += os.read(terminal, 1_000)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            # Again and again: a ^C between Python's look for signals and its wait for a key is heard with the next one.
            with contextlib.suppress(OSError):
                os.write(terminal, answer.encode())
            time.sleep(0.5)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                # One ^C more, while it was on its way out because of the first.
                return Exit.INTERRUPTED if code == -signal.SIGINT else code
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError(f"it asked, and did not end when it was told {answer!r}")
    finally:
        os.close(terminal)


async def test_topics_are_completed_from_the_service(cli: Cli, queue: AsyncTopic) -> None:
    asks = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": f"holdfast put {queue.name[:-2]}", "COMP_CWORD": "2"}
    completed = await cli.run(env=asks)
    assert completed.out.split() == [queue.name]
    away = await Cli("http://127.0.0.1:1").run(env=asks)
    assert (away.out.strip(), away.err) == ("", ""), "where nobody answers, there is nothing to offer"


@pytest.mark.parametrize(("status", "told"), [(502, " Request r-17."), (404, "")])
def test_a_fault_is_told_with_the_id_that_the_services_log_has(
    capsys: pytest.CaptureFixture[str], status: int, told: str
) -> None:
    with pytest.raises(typer.Exit), ending(Output(as_json=False)):
        raise status_error(status, "odd", "It failed.", request_id="r-17")
    said = capsys.readouterr().err
    assert said.startswith(f"error: odd: It failed.{told}")
    assert ("r-17" in said) == bool(told)
    with pytest.raises(typer.Exit), ending(Output(as_json=True)):
        raise status_error(status, "odd", "It failed.", request_id="r-17")
    assert json.loads(capsys.readouterr().err)["error"]["request_id"] == "r-17"
