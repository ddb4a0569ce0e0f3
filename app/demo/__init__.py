"""`./run demo`: the queue at work on the files of a folder, with a worker killed half way. Speaks only HTTP to it."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from app.base.keys import entries
from app.demo import attach, files, verdict
from app.demo.client import AWAY, Client, Refused
from app.demo.run import DemoPlan, run
from app.settings import read

if TYPE_CHECKING:
    from app.settings import Settings

PROJECT: Final = Path(__file__).resolve().parents[2]


def main(argv: list[str], settings: Settings) -> int:
    """The exit code: 0, or 1 when something is not as promised, or when the demo could not be run; it has said what."""
    args = _parser().parse_args(argv)
    folder: Path = args.folder
    if not folder.is_dir():
        print(f"holdfast: {folder} is no folder", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _leave)
    found = files.find(folder, {settings.data_dir.resolve(), PROJECT / "var"})
    for line in found.left_out[: verdict.SHOWN]:
        print(f"left out  {line}")
    if len(found.left_out) > verdict.SHOWN:
        print(f"left out  … and {len(found.left_out) - verdict.SHOWN:,} more")
    if not found.files:
        print(f"There is no file to read in {folder}: nothing to do.")
        return 0
    journals = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        with _service(args.url, settings, journals) as url:
            key = _key(args.key)
            client = Client(url, key)
            topic = f"demo-{secrets.token_hex(4)}"
            plan = DemoPlan(folder, found.files, topic, args.workers, args.batch, args.kill)
            try:
                return run(plan, client, key, journals)
            finally:
                if args.keep:
                    print(f"Kept: topic {topic}, and what the workers wrote in {journals}")
                else:
                    _delete(client, topic)
    except Refused as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 1
    finally:
        if not args.keep:
            shutil.rmtree(journals, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./run demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compute the SHA-256 of every file in a folder through the queue: one job for each file, worker\n"
        "processes that claim, compute and ack, and one of them killed half way with jobs in its hands.\n"
        "At the end every digest is compared with a direct computation.",
        epilog="It uses the service that runs at HOLDFAST_HOST and HOLDFAST_PORT; where none does, it starts one for\n"
        "its duration, on the same data folder. Exit code: 0, or 1 when something is not as promised.",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=PROJECT,
        help="default: this project's files. Anywhere, .git, .venv, .tools, caches and the data folder are skipped",
    )
    parser.add_argument("--workers", type=_number(1, 64), default=3, metavar="N", help="worker processes [3]")
    parser.add_argument(
        "--batch", type=_number(1, 1000), metavar="N", help="jobs that a worker claims at once [by the number of files]"
    )
    parser.add_argument("--url", help="a running service, such as http://127.0.0.1:8080")
    parser.add_argument("--key", help="API key [the first of HOLDFAST_API_KEYS]")
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="let every worker live")
    parser.add_argument("--keep", action="store_true", help="keep the topic, and the workers' result files")
    return parser


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            if low <= int(text) <= high:
                return int(text)
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from {low} to {high}")

    return parse


@contextmanager
def _service(url: str | None, settings: Settings, logs: Path) -> Iterator[str]:
    if url is not None:
        if not attach.answers(url):
            raise Refused(f"no Holdfast answers at {url}")
        yield url
        return
    local = attach.local_url(settings.host, settings.port)
    if settings.port != 0 and attach.answers(local):
        yield local
        return
    where = f"No service runs at {local}" if settings.port else "HOLDFAST_PORT is 0"
    print(f"{where}: starting one for the demo …", flush=True)
    with attach.started(logs) as own:
        yield own


def _key(given: str | None) -> str:
    """The first of the environment's: the settings keep none."""
    return given or next(iter(entries(read(os.environ).get("api_keys", ""))), "").partition(":")[0]


def _delete(client: Client, topic: str) -> None:
    """Leave nothing behind, as far as the service lets us."""
    try:
        status, _ = client.once("DELETE", f"/v0/topics/{topic}")
    except AWAY:
        status = 0
    if status != 200:
        print(f"holdfast: the topic {topic} could not be deleted", file=sys.stderr)


def _leave(_signal: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)
