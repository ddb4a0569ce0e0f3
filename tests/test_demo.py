"""`./run demo` as a visitor meets it: its outcome, what it says when something is wrong, and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from app.demo.files import DemoResult, File, Tally, digest_of, faults, find_files, left_over
from app.demo.run import Journal
from holdfast.models import QueueCounts, TopicConfig, TopicState
from tests.conftest import Running
from tests.processes import children, lives, until

ROOT = Path(__file__).parents[1]
KILLED = re.compile(r"worker-3 was killed \(SIGKILL\) while it held (\d+) jobs: (\d+) computed, none acked")


class Demo:
    """One demo as a process; its output as it comes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.words = ""

    async def until(self, pattern: str | re.Pattern[str]) -> None:
        """Wait until a line says so."""
        while not re.search(pattern, self.words):
            line = await self._line()
            assert line, f"it ended without {pattern}: {self.words}"

    async def end(self) -> int:
        while await self._line():
            pass
        return await self.process.wait()

    def figure(self, name: str) -> int:
        """A number of the table."""
        match = re.search(rf"^  {name} +([\d,]+)", self.words, re.M)
        assert match, self.words
        return int(match.group(1).replace(",", ""))

    async def _line(self) -> str:
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), 60)).decode()
        self.words += line
        return line


Start = Callable[..., Awaitable[Demo]]


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts demos: arguments, and settings as keywords. Their temporary files are in tmp_path/tmp."""
    begun: list[Demo] = []
    scratch = tmp_path / "tmp"
    scratch.mkdir()

    async def start(*arguments: str | Path, **settings: str) -> Demo:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        mine = {f"HOLDFAST_{name}": value for name, value in settings.items()}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "app", "demo", *map(str, arguments)),
            cwd=ROOT,
            env=clean | {"TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", "PYTHONPATH": "sdk/src"} | mine,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        begun.append(Demo(process))
        return begun[-1]

    yield start
    for one in begun:
        if one.process.returncode is None:
            one.process.kill()
            await asyncio.wait_for(one.process.wait(), 30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixty files in three folders."""
    folder = tmp_path / "files"
    for i in range(60):
        place = folder / f"part {i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i:02}.txt").write_bytes(b"%d" % i * (i * 40))
    return folder


@pytest.fixture
def many(folder: Path) -> Path:
    """The same and some thousand more: a demo that is not through before anything else happens."""
    for i in range(5_000):
        (folder / f"more {i}.txt").write_bytes(b"%d" % i)
    return folder


async def demo_topics(url: str, key: str = "") -> list[str]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=url, headers=headers) as http:
        answer = (await http.get("/v0/topics", params={"prefix": "demo-"})).json()
    return [topic["topic"] for topic in answer["topics"]]


async def test_every_file_is_done_also_those_of_the_killed_worker(
    demo: Start, folder: Path, service: Running, tmp_path: Path
) -> None:
    run = await demo(folder, "--url", service.url)
    code = await run.end()
    assert code == 0, run.words
    killed = KILLED.search(run.words)
    assert killed, run.words
    held, computed = map(int, killed.groups())
    assert held > computed >= 1
    assert run.figure("files") == 60
    assert run.figure("redeliveries") >= held
    assert run.figure("deliveries") == 60 + run.figure("redeliveries")
    assert run.figure("duplicates") >= computed
    assert re.search(r"^ *\d+/60  .* jobs/s  \d+ redelivered  by worker: \d+ \d+ \d+ \(killed\)$", run.words, re.M)
    assert "every digest is right, and the queue is empty" in run.words
    assert await demo_topics(service.url) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
async def test_a_file_that_changes_meanwhile_is_a_failure_that_is_explained(
    demo: Start, folder: Path, service: Running
) -> None:
    run = await demo(folder, "--url", service.url)
    await run.until(KILLED)
    # A third of them or more was computed by now, and what was killed waits for its lease of two seconds.
    for file in folder.rglob("*.txt"):
        file.write_bytes(b"something else")
    assert await run.end() == 1, run.words
    assert re.search(r"WRONG results \(\d+\):\n  part \d/\d\d.txt: ", run.words)
    assert "the file changed while the demo ran" in run.words
    assert "… and " in run.words
    assert await demo_topics(service.url) == []


@pytest.mark.slow
async def test_nobody_is_killed_on_request_and_the_topic_is_kept(
    demo: Start, folder: Path, service: Running, tmp_path: Path
) -> None:
    run = await demo(folder, "--url", service.url, "--no-kill", "--keep", "--workers", "2", "--batch", "4")
    assert await run.end() == 0, run.words
    assert run.figure("files") == 60
    assert "(SIGKILL)" not in run.words
    kept = await demo_topics(service.url)
    assert len(kept) == 1
    assert kept[0] in run.words
    journals = sorted(path.name for path in (tmp_path / "tmp").glob("*/*.jsonl"))
    assert journals == ["worker-1.jsonl", "worker-2.jsonl"]
    async with httpx.AsyncClient(base_url=service.url) as http:
        await http.delete(f"/v0/topics/{kept[0]}")


async def test_ctrl_c_leaves_nothing(demo: Start, many: Path, service: Running, tmp_path: Path) -> None:
    run = await demo(many, "--url", service.url)
    await run.until("jobs in the topic")
    assert len(await demo_topics(service.url)) == 1
    await run.until(KILLED)
    workers = children(run.process.pid, "app.demo.worker")
    run.process.send_signal(signal.SIGINT)
    assert len(workers) == 2
    assert await run.end() == 130, run.words
    assert "Traceback" not in run.words
    assert await demo_topics(service.url) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    await asyncio.to_thread(until, lambda: not any(map(lives, workers)))


@pytest.mark.slow
async def test_workers_end_with_a_demo_that_is_killed(demo: Start, many: Path, service: Running) -> None:
    run = await demo(many, "--url", service.url)
    await run.until(KILLED)
    workers = children(run.process.pid, "app.demo.worker")
    assert workers
    run.process.kill()
    await asyncio.wait_for(run.process.wait(), 20)  # its output, which they share, has to be closed too
    await asyncio.to_thread(until, lambda: not any(map(lives, workers)))
    async with httpx.AsyncClient(base_url=service.url) as http:
        for topic in await demo_topics(service.url):
            await http.delete(f"/v0/topics/{topic}")


@pytest.mark.slow
async def test_it_starts_a_service_where_none_runs_and_stops_it(demo: Start, folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    run = await demo(folder, PORT="0", DATA_DIR=str(data), API_KEYS="a-key-of-some-length,another:r")
    assert await run.end() == 0, run.words
    assert "starting one for the demo" in run.words
    assert KILLED.search(run.words)
    assert list(data.glob("pg*/PG_VERSION"))
    assert not list(data.glob("pg*/postmaster.pid")), "PostgreSQL was not stopped"


@pytest.mark.slow
async def test_it_uses_the_service_that_runs(demo: Start, folder: Path, service: Running, tmp_path: Path) -> None:
    port = service.url.rsplit(":", 1)[1]
    run = await demo(folder, "--no-kill", PORT=port, DATA_DIR=str(tmp_path / "data"))
    assert await run.end() == 0, run.words
    assert service.url in run.words
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
async def test_a_service_that_does_not_start_is_one_line(demo: Start, folder: Path) -> None:
    run = await demo(folder, PORT="0", DATA_DIR="/dev/null/data")
    assert await run.end() == 1
    assert re.search(r"^holdfast: the service did not start: Can't write to the data folder", run.words, re.M), (
        run.words
    )


@pytest.mark.slow
async def test_a_refusal_is_one_line(
    demo: Start, folder: Path, serve: Callable[..., Awaitable[Running]], tmp_path: Path
) -> None:
    service = await serve(api_keys=SecretStr("the-whole-key,the-small-key:rw"))
    expected = {"the-small-key": "403 forbidden: This key lacks the scope admin.", "wrong": "401 unauthorized: "}
    for key, words in expected.items():
        run = await demo(folder, "--url", service.url, "--key", key)
        assert await run.end() == 1
        refusal = [
            line for line in run.words.splitlines() if line.startswith("holdfast: the service refused the call: ")
        ]
        assert len(refusal) == 1, run.words
        assert words in refusal[0]
        assert "Traceback" not in run.words
    run = await demo(folder, "--url", service.url, "--no-kill", API_KEYS="the-whole-key,the-small-key:rw")
    assert await run.end() == 0, run.words
    assert await demo_topics(service.url, "the-whole-key") == []


async def test_what_can_not_work_is_said(demo: Start, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nothing = await demo(tmp_path / "empty", "--url", "http://127.0.0.1:1")
    assert await nothing.end() == 0
    assert nothing.words == f"There are no readable files in {tmp_path / 'empty'}. Nothing to do.\n"
    cases = {
        (str(tmp_path / "nowhere"),): (1, "is not a folder"),
        (str(folder), "--url", "http://127.0.0.1:1"): (1, "no Holdfast service answers at http://127.0.0.1:1"),
        (str(folder), "--url", "ftp://x"): (1, "is not a service's URL"),
        (str(folder), "--workers", "0"): (2, "0 is not a whole number from 1 to 64"),
    }
    for arguments, (code, words) in cases.items():
        run = await demo(*arguments)
        assert await run.end() == code
        assert words in run.words
        assert "Traceback" not in run.words


def test_only_files_that_can_be_read_are_taken() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for path in (
            "a",
            "secret",
            "sub/b",
            ".git/x",
            "sub/.venv/x",
            "__pycache__/x",
            ".mypy_cache/x",
            "var/x",
            "own/var/x",
        ):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("x")
        (folder / "link").symlink_to(folder / "a")
        os.mkfifo(folder / "pipe")
        (folder / "secret").chmod(0)
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).touch()
        with as_somebody_else():
            files, left_out = find_files(folder, {(folder / "var").resolve()})
        assert [file.path for file in files] == ["a", "own/var/x", "sub/b"]
        assert left_out == ["secret: Permission denied", r"'\udcff': its name is not UTF-8"]


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """As root may read everything, root looks with another's eyes."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("results", "touch", "words"),
    [
        ([], False, "never done"),
        (
            [DemoResult("w", 1, "0" * 64, None)],
            False,
            "w reported 000000000000…, but it is 2d711642b726… now: the file has not changed since the start",
        ),
        ([DemoResult("w", 1, "0" * 64, None)], True, "the file changed while the demo ran"),
        ([DemoResult("w", 1, None, "Permission denied")], False, "w could not read it: Permission denied"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, results: list[DemoResult], touch: bool, words: str) -> None:
    (tmp_path / "f").write_text("x")
    status = (tmp_path / "f").stat()
    asked = [File("f", status.st_size, status.st_mtime_ns - int(touch))]
    found = faults(tmp_path, asked, {"f": results})
    assert len(found) == 1
    assert words in found[0]


def test_one_right_digest_is_enough_and_a_file_that_is_gone_is_not(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    right = DemoResult("w", 2, digest_of(tmp_path / "f"), None)
    wrong = DemoResult("w", 1, "0" * 64, None)
    asked = [File("f", 1, 0)]
    assert faults(tmp_path, asked, {"f": [wrong, right]}) == []
    (tmp_path / "f").unlink()
    assert "can't be read any more" in faults(tmp_path, asked, {"f": [right]})[0]


def test_a_queue_that_still_holds_something_is_named() -> None:
    def state(count: int, in_flight: int) -> TopicState:
        counts = QueueCounts(ready=0, in_flight=in_flight, dead_lettered=0)
        return TopicState(
            topic="t", type="queue", head_seq=1, earliest_seq=1, next_seq=2, count=count, bytes=0, config=TopicConfig(),
            effective_priority=0, last_write_at=None, last_read_at=None, queue=counts,
        )  # fmt: skip

    assert left_over(state(0, 0)) == []
    assert left_over(state(2, 2)) == ["the queue is not empty: in_flight 2, count 2"]


def test_a_line_that_its_writer_did_not_finish_is_left_for_later(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with (tmp_path / "j").open("ab", buffering=0) as file:
        file.write(b'{"a": 1}\n{"b": 2}\n{"c": ')
        assert journal.new() == [{"a": 1}, {"b": 2}]
        assert journal.new() == []
        file.write(b"3}\n")
        assert journal.new() == [{"c": 3}]


def test_the_tally_tells_redeliveries_from_duplicates() -> None:
    tally = Tally(2)
    for line in (
        {"path": "a", "deliveries": 1, "digest": "0"},
        {"path": "a", "deliveries": 2, "digest": "0"},
        {"path": "b", "deliveries": 2, "error": "gone"},
    ):
        tally.add("w", line)
    assert (len(tally.results), tally.redeliveries, tally.duplicates) == (2, 2, 1)
    assert "\n  deliveries             4\n" in tally.table(0, {})
