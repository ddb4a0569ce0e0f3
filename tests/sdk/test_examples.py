"""docs/examples: each does what it is there to show, on the real service."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread

import httpx
import pytest
from aiosmtpd.controller import Controller
from PIL import Image

from holdfast import AsyncClient, errors
from tests.api.keyring import Services
from tests.conftest import Running
from tests.processes import until
from tests.programs import free_port
from tests.sdk.conftest import Serve

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"
PAGE = (ROOT / "docs/sdk.md").read_text()
SECONDS = 60


@pytest.fixture(scope="module")
async def place(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> tuple[Running, str]:
    """A service, and its database."""
    services = await Services.make(serve, new_database)
    return await services.start(), services.url


def started(name: str, url: str, *words: object, **variables: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return subprocess.Popen(
        [sys.executable, EXAMPLES / name, *map(str, words)],
        env=clean | {"HOLDFAST_URL": url, "PYTHONPATH": str(ROOT / "sdk/src")} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def output_of(name: str, url: str, *words: object, **variables: str) -> str:
    """What an example prints that comes to its end."""
    process = started(name, url, *words, **variables)
    try:
        out, err = await asyncio.to_thread(process.communicate, timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


async def test_thumbnails(place: tuple[Running, str], tmp_path: Path) -> None:
    for name, size in (("wide.png", (1_000, 500)), ("tall.jpg", (300, 900)), ("small.gif", (20, 10))):
        Image.new("RGB", size, "teal").save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    said = await output_of("thumbnails.py", place[0].url, tmp_path)
    assert said in PAGE
    made = {path.name: Image.open(path).size for path in (tmp_path / "thumbnails").iterdir()}
    assert made == {"small.gif.jpg": (20, 10), "tall.jpg.jpg": (85, 256), "wide.png.jpg": (256, 128)}


class Mailbox:
    """A mail server."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []

    async def handle_DATA(self, _server: object, _session: object, envelope) -> str:  # type: ignore[no-untyped-def]  # noqa: N802
        self.letters.append(envelope.content)
        return "250 OK"


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, str]]:
    box = Mailbox()
    port = free_port()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    yield box, f"127.0.0.1:{port}"
    controller.stop()


async def test_letters(place: tuple[Running, str], mailbox: tuple[Mailbox, str]) -> None:
    box, address = mailbox
    said = await output_of("letters.py", place[0].url, SMTP_HOST=address)
    assert said in PAGE
    [letter] = box.letters
    assert b"To: ada@example.com" in letter
    # The window is a day: the same order is paid once more, and nobody hears of it.
    assert await output_of("letters.py", place[0].url, SMTP_HOST=address) == said
    assert len(box.letters) == 1


async def test_the_scraper_reads_each_page_once_and_not_too_fast(place: tuple[Running, str]) -> None:
    said = await output_of("scraper.py", place[0].url)
    lines = [line.split() for line in said.splitlines()]
    assert sorted(int(url.rpartition("/")[2]) for _, _, url in lines) == list(range(20))
    # Five a second, and a second's worth that may have gathered.
    assert max(float(seconds) for seconds, _, _ in lines) >= (20 - 5) / 5


@asynccontextmanager
async def shop(url: str, database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    port = free_port()
    process = started("orders.py", url, DATABASE_URL=database_url, PORT=str(port))
    said: list[str] = []
    assert process.stderr is not None
    Thread(target=said.extend, args=(process.stderr,), daemon=True).start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
            up = "Uvicorn running on"
            await asyncio.to_thread(until, lambda: any(up in line for line in said), SECONDS, or_show=lambda: said)
            yield http
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


async def test_an_order_and_its_job_are_there_together_or_not_at_all(place: tuple[Running, str]) -> None:
    running, database_url = place
    async with shop(running.url, database_url) as http, AsyncClient(running.url) as client:
        answers = [await http.post("/orders", params={"item": "lamp"}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [201, 201, 201, 409]
        async with asyncio.timeout(30):
            for number in (answer.json()["order"] for answer in answers[:3]):
                while (await http.get(f"/orders/{number}")).json() != {"state": "shipped"}:
                    await asyncio.sleep(0.05)
        # The fourth order was written, and its job as well, before the lamp was missed.
        assert (await http.get("/orders/4")).status_code == 404
        shipping = client.topic("shipping")
        assert {(await shipping.result(seq)).state for seq in (1, 2, 3)} == {"completed"}
        with pytest.raises(errors.NotFound):
            await shipping.result(4)
