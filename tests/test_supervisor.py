"""`python -m app serve` as an operator meets it: what it prints, what it refuses, and what it survives."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError

import asyncpg
import pytest

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from tests.launch import ROOT, Serve, answers, call, services
from tests.processes import lives, until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the tests of this file: the cluster is made once."""
    return tmp_path_factory.mktemp("service")


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    """Starts services, and ends those that still run."""
    with services(folder) as start:
        yield start


def test_it_prints_its_address_and_a_line_that_works(serve: Serve) -> None:
    service = serve()
    url = service.up()
    greeting, line, pages = service.out.read_text().strip().splitlines()
    with urllib.request.urlopen(pages.removeprefix("See:  "), timeout=15) as page:
        assert b"Holdfast</title>" in page.read()
    assert re.fullmatch(
        r"Holdfast \S+ is running on http://127\.0\.0\.1:\d+  \(PostgreSQL \d\S*, data in \S+/\)", greeting
    )
    tried = subprocess.run(
        ["bash", "-c", line.removeprefix("Try:  ") + " --silent --fail-with-body"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 0, tried
    assert json.loads(tried.stdout)["config"]["durability"] == "fsync"
    assert answers(url)
    code, seconds = service.stop()
    assert code == 0
    assert seconds < 10
    assert service.postgres() is None


def test_a_clients_key_is_said_to_be_ignored(serve: Serve) -> None:
    words = "HOLDFAST_API_KEY is a setting of the client. The service ignores it; set its keys with HOLDFAST_API_KEYS"
    service = serve(API_KEY="a-client-s-own-key")
    service.up()
    assert service.words.count(words) == 1
    assert "a-client-s-own-key" not in service.words
    guarded = serve(API_KEY="a-client-s-own-key", API_KEYS="a-key-of-some-length")
    guarded.up()
    assert words not in guarded.words


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="what a process was started with is seen in /proc")
@pytest.mark.slow
def test_secrets_are_in_no_environment_once_it_runs(serve: Serve) -> None:
    """Neither in that of the supervisor and its server, nor in what PostgreSQL inherits; and a server that is started
    again has them all the same."""
    key = "a-key-of-some-length"
    service = serve(API_KEYS=key)
    url = service.up()

    def nowhere() -> bool:
        pids = [service.process.pid, service.server(), service.postgres()]
        assert all(pids), pids
        return not any(key.encode() in Path(f"/proc/{pid}/environ").read_bytes() for pid in pids)

    assert nowhere()
    first = service.server()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: service.server() not in {None, first}, 10)
    ask = urllib.request.Request(f"{url}/v0/topics", headers={"authorization": f"Bearer {key}"})
    with urllib.request.urlopen(ask) as answer:
        assert answer.status == 200
    assert nowhere()


def test_keys_come_from_a_file_and_are_asked_for_in_the_printed_line(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a-key-of-some-length:read\n")
    service = serve(API_KEYS_FILE=str(tmp_path / "keys"))
    url = service.up()
    assert "-H 'authorization: Bearer <" in service.out.read_text()
    assert "a-key-of-some-length" not in service.words
    ask = urllib.request.Request(f"{url}/v0/topics", headers={"authorization": "Bearer a-key-of-some-length"})
    with urllib.request.urlopen(ask) as answer:
        assert answer.status == 200
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(f"{url}/v0/topics")
    assert refused.value.code == 401


def test_a_taken_port_is_one_line(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, line = serve(PORT=str(port)).refused()
    assert code == 1
    assert (
        line
        == f"holdfast: Port {port} on 127.0.0.1 is already in use. Set HOLDFAST_PORT, or stop the process that uses it."
    )


def test_a_database_that_can_not_be_reached_is_one_line(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, line = serve(
        DATABASE_URL=f"postgresql://someone:topsecret@127.0.0.1:{port}/x", START_WAIT_SECONDS="0"
    ).refused()
    assert code == 2
    assert line == f"holdfast: The database at 127.0.0.1:{port} can't be reached: Connection refused"


def test_a_schema_from_the_future_is_one_line(serve: Serve, tmp_path: Path) -> None:
    async def age(url: str) -> None:
        await schema.upgrade(url)
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("UPDATE holdfast.alembic_version SET version_num = '9999'")
        finally:
            connection.terminate()

    postgres = EmbeddedPostgres(tmp_path, unsafe_fast=True)
    try:
        url = postgres.start()
        asyncio.run(age(url))
        code, line = serve(DATABASE_URL=url).refused()
    finally:
        postgres.stop()
    assert code == 2
    assert line.startswith(
        f"holdfast: The database has schema 9999, but this version of Holdfast knows only up to {schema.KNOWN[-1]}. "
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"PROT": "80"}, "HOLDFAST_PROT is not a setting; did you mean HOLDFAST_PORT?"),
        ({"PORT": "99999"}, "HOLDFAST_PORT: "),
        ({"HOST": "no.such.name.invalid", "API_KEYS": "a-key-of-some-length"}, "HOLDFAST_HOST=no.such.name.invalid"),
        ({"DATABASE_URL": "mysql://localhost/x"}, "HOLDFAST_DATABASE_URL: "),
        ({"PG_BINDIR": "/nowhere"}, "HOLDFAST_PG_BINDIR=/nowhere"),
        ({"DATA_DIR": "/dev/null/data"}, "HOLDFAST_DATA_DIR"),
    ],
)
def test_nonsense_is_one_line(serve: Serve, settings: dict[str, str], expected: str) -> None:
    code, line = serve(**settings).refused()
    assert code == 2
    assert line.startswith("holdfast: ")
    assert expected in line


def test_an_address_that_others_reach_needs_a_key_and_one_of_the_database_will_do(serve: Serve, tmp_path: Path) -> None:
    refused = serve(folder=tmp_path, HOST="0.0.0.0")
    assert refused.process.wait(60) == 2
    assert refused.out.read_text() == ""
    reason, last = refused.err.read_text().splitlines()[-2:]
    assert reason.startswith("holdfast: HOLDFAST_HOST=0.0.0.0 is reachable from other machines, and there is no ")
    assert last == "holdfast: The server process did not start. See the log above for the reason."
    command = [sys.executable, "-m", "app", "keys", "add", "first", "--scopes", "admin"]
    environment = os.environ | {"HOLDFAST_DATA_DIR": str(tmp_path / "data")}
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    service = serve(folder=tmp_path, HOST="0.0.0.0")
    url = service.up()
    assert "-H 'authorization: Bearer <your key>'" in service.out.read_text()
    with pytest.raises(HTTPError) as error:
        call(f"{url}/v0/keys")
    assert error.value.code == 401
    request = urllib.request.Request(f"{url}/v0/keys", headers={"authorization": f"Bearer {made.stdout.strip()}"})
    with urllib.request.urlopen(request, timeout=15) as answer:
        assert [key["name"] for key in json.loads(answer.read())["keys"]] == ["first"]
    assert made.stdout.strip() not in service.words


@pytest.fixture
def few_files() -> Iterator[int]:
    """This process, and those it starts, may open 256 files until they ask for more: how many they may at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux tells of another process's limits")
@pytest.mark.slow
def test_it_asks_the_system_for_as_many_files_as_it_takes_connections(serve: Serve, few_files: int) -> None:
    service = serve(MAX_CONNECTIONS="500")
    service.up()
    server = service.server()
    assert server is not None
    assert resource.prlimit(server, resource.RLIMIT_NOFILE)[0] == min(500 + 512, few_files)
    assert "open" not in service.err.read_text()
    service.stop()
    if few_files >= 1_000_000 or few_files == resource.RLIM_INFINITY:
        return
    denied = serve(MAX_CONNECTIONS=str(few_files))
    denied.up()
    warning = f"A process can open {few_files} files, but HOLDFAST_MAX_CONNECTIONS={few_files} needs {few_files + 512}"
    assert warning in denied.err.read_text()


@pytest.mark.slow
def test_a_stop_during_the_first_start_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    service = serve(folder=tmp_path)
    until((tmp_path / "data/owner.lock").exists)
    postgres = until(lambda: service.postgres() or service.process.poll() is not None)
    code, seconds = service.stop()
    assert code == 0, service.words
    assert seconds < 10
    assert not lives(postgres)


@pytest.mark.alone
def test_a_stop_sends_away_who_waits_for_work(serve: Serve) -> None:
    service = serve()
    url = service.up()
    call(f"{url}/v0/topics/idle", "PUT", {"type": "queue"})
    stream = urllib.request.Request(f"{url}/v0/topics/idle/work?node=n2", headers={"accept": "text/event-stream"})
    with ThreadPoolExecutor(1) as thread, urllib.request.urlopen(stream, timeout=30) as events:
        waiting = thread.submit(call, f"{url}/v0/topics/idle/claim", "POST", {"node": "n1", "wait_ms": 20000})
        until(lambda: waiting.done() or established(url) >= 2)
        assert not waiting.done(), waiting.result()
        code, seconds = service.stop()
        events.read()
        waiting.exception()
    assert code == 0
    assert seconds < 5


def established(url: str) -> int:
    """Connections that the server there has accepted, or is about to."""
    port = url.rsplit(":", 1)[1]
    command = ["ss", "-Htn", "state", "established", f"( sport = :{port} )"]
    return len(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


@pytest.mark.alone
def test_a_killed_server_process_comes_back_and_no_connection_is_refused(serve: Serve) -> None:
    service = serve()
    url = service.up()
    killed = service.server()
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    # Sent while nobody serves: it waits in the socket's backlog.
    assert answers(url)
    assert service.server() not in {None, killed}
    assert "was killed by SIGKILL" in service.err.read_text()
    assert service.stop()[0] == 0


@pytest.mark.alone
def test_a_killed_postgres_comes_back(serve: Serve) -> None:
    service = serve()
    url = service.up()
    call(f"{url}/v0/topics/kept", "PUT", {"type": "queue", "durable": True})
    killed = service.postgres()
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: service.postgres() not in {None, killed})
    until(lambda: answers(url), or_show=lambda: service.words)
    assert call(f"{url}/v0/topics/kept")["config"]["durability"] == "fsync"
    assert service.stop()[0] == 0


@pytest.mark.alone
@pytest.mark.slow
def test_a_server_process_that_hangs_does_not_hold_up_a_stop(serve: Serve) -> None:
    service = serve(STOP_SECONDS="1")
    service.up()
    server = service.server()
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    code, seconds = service.stop()
    assert code == 0
    assert seconds < 10
    assert not lives(server)


@pytest.mark.alone
@pytest.mark.slow
def test_what_it_started_ends_with_it(serve: Serve) -> None:
    service = serve()
    url = service.up()
    server, postgres = service.server(), service.postgres()
    assert server is not None
    assert postgres is not None
    service.process.kill()
    service.process.wait()
    until(lambda: not lives(server))
    if shutil.which("setpriv") is not None:
        until(lambda: not lives(postgres))
    # And the port is free for the next one.
    again = serve(PORT=url.rsplit(":", 1)[1])
    assert again.up() == url
