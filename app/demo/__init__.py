"""`./run demo`: runs the queue on the files of a folder, and kills a worker half way. It uses the Python client and
knows only the service's URL."""

from __future__ import annotations

import argparse
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from app.base.keys import entries
from app.demo.files import find_files, first_of
from app.demo.run import CannotGoOn, DemoPlan, run
from app.settings import read
from holdfast import Client, HoldfastError, errors

if TYPE_CHECKING:
    from app.settings import Settings

PROJECT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 15.0  # seconds; much longer than a restart of the service
START_SECONDS: Final = 180.0  # the first start creates a database
STOP_SECONDS: Final = 20.0
HINTS: Final = {
    401: " Pass a key with --key, or set HOLDFAST_API_KEYS.",
    403: " The demo creates, fills, empties and deletes a topic named demo-…. Pass a key that may do that.",
}
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  (not bound to: looked up)


def main(argv: list[str], settings: Settings) -> int:
    """Run the demo. Returns the exit code: 0, or 1 after a fault or an error, which is printed."""
    args = _parser().parse_args(argv)
    folder: Path = args.folder
    if not folder.is_dir():
        print(f"holdfast: {folder} is not a folder", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _leave)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request
    files, left_out = find_files(folder, {settings.data_dir.resolve(), PROJECT / "var"})
    if left_out:
        print(first_of(left_out, "left out  "))
    if not files:
        print(f"There are no readable files in {folder}. Nothing to do.")
        return 0
    journals = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    key = args.key or _first_key()
    topic = f"demo-{secrets.token_hex(4)}"
    try:
        with _service(args.url, settings, journals) as url, _client(url, key, PATIENCE) as client:
            plan = DemoPlan(url, key, topic, folder, files, journals, args.workers, args.batch, args.kill)
            try:
                return run(plan, client)
            finally:
                if args.keep:
                    print(f"Kept topic {topic} and the workers' results in {journals}")
                else:
                    _delete(client, topic)
    except HoldfastError as error:
        print(f"holdfast: {_reason(error)}", file=sys.stderr)
        return 1
    finally:
        if not args.keep:
            shutil.rmtree(journals, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./run demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compute the SHA-256 of every file in a folder through the queue, with one job for each file and\n"
        "worker processes of the Python client. One worker is killed half way while it holds jobs.\n"
        "At the end every digest is compared with a direct computation.",
        epilog="Uses the service at HOLDFAST_HOST and HOLDFAST_PORT. If none runs there, the demo starts one on the "
        "same\ndata folder and stops it at the end. Exit code: 0, or 1 if a result is wrong.",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=PROJECT,
        help="default: this project's files. Skips .git, .venv, .tools, caches and the data folder",
    )
    parser.add_argument("--workers", type=_number(1, 64), default=3, metavar="N", help="worker processes [3]")
    parser.add_argument(
        "--batch",
        type=_number(1, 1000),
        metavar="N",
        help="concurrent jobs per worker [by the number of files]",
    )
    parser.add_argument("--url", help="a running service, such as http://127.0.0.1:8080")
    parser.add_argument("--key", help="API key [the first of HOLDFAST_API_KEYS]")
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="kill no worker")
    parser.add_argument("--keep", action="store_true", help="keep the topic and the workers' result files")
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


def _first_key() -> str:
    """The first key in the environment. The settings have only digests."""
    return next(iter(entries(read(os.environ).get("api_keys", ""))), "").partition(":")[0]


def _client(url: str, key: str, patience: float) -> Client:
    """Make a client. Raises CannotGoOn for a malformed URL."""
    try:
        return Client(url, key, timeout=patience, attempt_timeout=patience, retries=1_000)
    except ValueError:
        raise CannotGoOn(f"{url} is not a service's URL. Use http://host:port") from None


@contextmanager
def _service(url: str | None, settings: Settings, logs: Path) -> Iterator[str]:
    """The URL of the given service, or of the running one. Otherwise starts a service for the duration of the block."""
    if url is not None:
        url = url if "//" in url else f"http://{url}"
        if not _answers(url):
            raise CannotGoOn(f"no Holdfast service answers at {url}")
        yield url
        return
    host = _WILDCARDS.get(settings.host, settings.host)
    local = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
    if settings.port != 0 and _answers(local):
        yield local
        return
    where = f"No service runs at {local}" if settings.port else "HOLDFAST_PORT is 0"
    print(f"{where}: starting one for the demo …", flush=True)
    with _own_service(logs) as own:
        yield own


def _answers(url: str) -> bool:
    with _client(url, "", 3.0) as client, suppress(HoldfastError):
        client.with_options(retries=0).health()
        return True
    return False


@contextmanager
def _own_service(logs: Path) -> Iterator[str]:
    """Run a service during the block. Raises CannotGoOn with the last line of its log if it does not start."""
    out, err = logs / "service.out", logs / "service.err"
    # If the system supports it, the service ends with this process.
    tied = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(  # noqa: S603
            [*tied, sys.executable, "-m", "app", "serve"],
            env=os.environ | {"HOLDFAST_PORT": "0"},
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            start_new_session=True,  # Ctrl+C goes to the demo, which cleans up first
        )
    try:
        end = time.monotonic() + START_SECONDS
        while not (match := re.search(r" is running on (\S+) .*\n", out.read_text())):
            if process.poll() is not None or time.monotonic() > end:
                words = err.read_text().strip().splitlines() or ["no reason given"]
                raise CannotGoOn(f"the service did not start: {words[-1].removeprefix('holdfast: ')}")
            time.sleep(0.05)
        yield match.group(1)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _delete(client: Client, topic: str) -> None:
    try:
        client.with_options(retries=0).topic(topic).delete()
    except HoldfastError:
        print(f"holdfast: can't delete the topic {topic}", file=sys.stderr)


def _reason(error: HoldfastError) -> str:
    if isinstance(error, errors.APIStatusError):
        return f"the service refused the call: {error}{HINTS.get(error.status, '')}"
    return f"the service does not answer: {error}" if isinstance(error, errors.APIConnectionError) else str(error)


def _leave(_signal: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)
