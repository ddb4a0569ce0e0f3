"""The embedded PostgreSQL: who starts it, who stops it, and what a crash of either leaves behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.base.db import programs
from app.base.db.embedded import EmbeddedPostgres
from app.errors import ConfigurationError
from tests.processes import account, lives, until

ROOT = Path(__file__).parents[2]
Make = Callable[..., EmbeddedPostgres]

OWNER = """
import sys
from pathlib import Path
from app.base.db.embedded import EmbeddedPostgres
postgres = EmbeddedPostgres(Path(sys.argv[1]), unsafe_fast=True)
postgres.start()
print(postgres.pid, flush=True)
sys.stdin.read()
postgres.stop()
"""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Servers on a folder of this test, stopped at its end in the reverse order."""
    made: list[EmbeddedPostgres] = []

    def build(folder: Path = tmp_path / "data", **more: Any) -> EmbeddedPostgres:
        made.append(EmbeddedPostgres(folder, **({"unsafe_fast": True} | more)))
        return made[-1]

    yield build
    for postgres in reversed(made):
        postgres.stop()


@pytest.fixture
def tools() -> Iterator[Callable[..., str]]:
    """A PATH with these programs only, which every account can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)

        def build(*names: str) -> str:
            for name in names:
                place = shutil.which(name)
                if place is None:
                    pytest.skip(f"{name} is not installed")
                (Path(folder) / name).symlink_to(place)
            return folder

        yield build


def ask(url: str, statement: str) -> Any:
    async def run() -> Any:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return await connection.fetchval(statement)
        finally:
            connection.terminate()

    return asyncio.run(run())


def owner(folder: Path, path: str | None = None) -> tuple[subprocess.Popen[str], int]:
    """Another process that owns the server of that folder: it, and the server's number."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, folder],
        cwd=ROOT, env=os.environ | ({"PATH": path} if path else {}), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_first_start_makes_a_durable_server_for_this_machine_only(make: Make, tmp_path: Path) -> None:
    postgres = make(unsafe_fast=False)
    url = postgres.start()
    for name, value in {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "timezone": "UTC",
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "server_encoding": "UTF8",
    }.items():
        assert ask(url, f"SHOW {name}") == value, name
    assert url.endswith("/holdfast")
    password = tmp_path / f"data/pg{postgres.cluster.programs.major}.password"
    assert password.stat().st_mode & 0o777 == 0o600
    with pytest.raises(asyncpg.InvalidPasswordError):
        ask(url.replace(password.read_text(), "guessed"), "SELECT 1")


def test_a_later_start_keeps_the_data_and_the_address_and_a_cluster_that_was_half_made_is_made_anew(
    make: Make, tmp_path: Path
) -> None:
    half = tmp_path / f"data/pg{programs.find_programs(None).major}.init"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("broken")
    first = make()
    url = first.start()
    assert not half.exists()
    ask(url, "CREATE TABLE kept AS SELECT 42 AS n")
    first.stop()
    assert not first.alive()
    assert make().start() == url
    assert ask(url, "SELECT n FROM kept") == 42


@pytest.mark.alone
def test_the_server_ends_with_its_owner(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    process, pid = owner(tmp_path)
    kill(process)
    until(lambda: not lives(pid))


@pytest.mark.alone
def test_a_server_that_was_left_behind_is_adopted(make: Make, tmp_path: Path, tools: Callable[..., str]) -> None:
    # Without setpriv on PATH, as on a Mac, the server outlives its owner.
    process, pid = owner(tmp_path / "data", path=tools("unshare", "true"))
    kill(process)
    assert lives(pid)
    heir = make()
    assert ask(heir.start(), "SELECT 1") == 1
    assert (heir.pid, heir.is_owner) == (pid, True)
    heir.stop()
    assert not lives(pid)


@pytest.mark.alone
def test_a_server_that_is_on_its_way_out_is_waited_for(make: Make, tmp_path: Path) -> None:
    process, pid = owner(tmp_path / "data")
    os.kill(pid, signal.SIGTERM)  # waits for its clients: there are none, so it ends in a moment
    kill(process)
    heir = make()
    assert ask(heir.start(), "SELECT 1") == 1
    assert heir.is_owner


def test_the_second_user_of_a_folder_joins_and_takes_over_when_the_owner_has_gone(make: Make) -> None:
    first, second, third = make(), make(), make()
    url = first.start()
    assert [second.start(), third.start()] == [url, url]
    assert (first.is_owner, second.is_owner, second.pid) == (True, False, first.pid)
    third.stop()
    assert ask(url, "SELECT 1") == 1, "it stops nothing"
    first.stop()
    assert not second.alive()
    assert second.restart() == url
    assert second.is_owner
    assert ask(url, "SELECT 1") == 1


def test_many_first_starts_at_once_make_one_cluster(make: Make) -> None:
    servers = [make() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        urls = set(threads.map(lambda server: server.start(), servers))
    assert len(urls) == 1
    assert [server.is_owner for server in servers].count(True) == 1


@pytest.mark.alone
def test_a_killed_server_comes_back_on_its_port_once_its_children_are_gone(make: Make) -> None:
    postgres = make(unsafe_fast=False)
    url = postgres.start()
    ask(url, "CREATE TABLE kept AS SELECT 42 AS n")
    killed = postgres.pid
    # Never waits, so it does not notice that its postmaster has died, and holds the shared memory until its end.
    working = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT count%' AND state = 'active'"
    with ThreadPoolExecutor(1) as thread:
        thread.submit(ask, url, "SELECT count(*) FROM generate_series(1, 20000000)")
        backend = until(lambda: ask(url, working))
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        until(lambda: not postgres.alive())
        assert postgres.restart() == url
        assert not lives(backend)
    assert "shared memory block" in postgres.cluster.log.read_text()
    assert postgres.pid != killed
    assert ask(url, "SELECT n FROM kept") == 42, "what was committed"


@pytest.mark.alone
def test_a_number_that_another_process_has_now_does_not_stop_a_start(make: Make, tmp_path: Path) -> None:
    first = make()
    first.start()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not first.alive())
    file = first.cluster.data / "postmaster.pid"
    first.stop()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join([f"{stranger.pid}\n", *lines[1:]]))
            assert ask(make().start(), "SELECT 1") == 1
        finally:
            stranger.kill()


def refused(postgres: EmbeddedPostgres) -> str:
    with pytest.raises(ConfigurationError) as error:
        postgres.start()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_can_not_be_used_is_refused(make: Make, tmp_path: Path) -> None:
    assert "no postgres and initdb" in refused(make(bindir=tmp_path))
    (tmp_path / "file").touch()
    assert "HOLDFAST_DATA_DIR" in refused(make(tmp_path / "file/data"))
    (tmp_path / "data/pg13").mkdir(parents=True)
    (tmp_path / "data/pg13/PG_VERSION").write_text("13\n")
    message = refused(make())
    assert "belongs to PostgreSQL 13" in message
    assert "HOLDFAST_PG_BINDIR" in message


def test_another_password_and_a_damaged_cluster_are_refused_and_a_start_can_be_given_up(make: Make) -> None:
    first = make()
    first.start()
    password = first.cluster.password.read_text()
    first.cluster.password.write_text("guessed")
    message = refused(make())
    assert "rejects the password" in message
    assert "guessed" not in message
    first.cluster.password.write_text(password)
    first.stop()

    (first.cluster.data / "global/pg_control").unlink()  # so that it is tried again and again
    assert "postgres.log" in refused(make()), "the server's reason"
    again, log = make(), first.cluster.log
    tried = log.stat().st_size
    with ThreadPoolExecutor(1) as thread:
        start = thread.submit(again.start)
        until(lambda: log.stat().st_size > tried)
        again.stop()
        assert "Stopped" in str(start.exception())
    assert not again.alive()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a cluster and little else."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill_up(disk: Path, leave: int) -> Path:
    """A file that takes all room but `leave` bytes."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - leave)
    return filler


@pytest.mark.slow
def test_a_full_disk_is_named_and_room_brings_the_server_back(small_disk: Path, make: Make) -> None:
    filler = fill_up(small_disk, 20_000_000)
    assert "No space left on device" in refused(make(small_disk / "data"))
    filler.unlink()
    postgres = make(small_disk / "data", unsafe_fast=False)
    url = postgres.start()
    ask(url, "CREATE TABLE kept AS SELECT 1 AS n")
    filler = fill_up(small_disk, 0)
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGKILL)
    until(lambda: not postgres.alive())
    full = f"the disk of {small_disk / 'data'} is full"
    assert full in (postgres.cluster.lack_of_room() or "")
    postgres.stop()
    assert full in refused(make(small_disk / "data"))
    filler.unlink()
    assert make(small_disk / "data").start() == url
    assert ask(url, "SELECT n FROM kept") == 1


def test_root_without_user_namespaces_runs_it_as_nobody(tools: Callable[..., str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root hands the server to another account")
    bindir = programs.find_programs(None).bindir
    if any(not parent.stat().st_mode & 0o001 for parent in bindir.parents):
        pytest.skip(f"nobody can't reach {bindir}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        process, pid = owner(Path(folder), path=tools("setpriv", "true"))
        assert account(pid) == "nobody"
        process.communicate()
        assert process.returncode == 0
        assert not lives(pid)
