"""`holdfast worker`."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
from typing import Annotated, Final

import typer

from holdfast._cli.params import topics_that_begin
from holdfast._cli.processes import CAN_RELOAD, Processes
from holdfast._worker.handlers import Queue
from holdfast._worker.worker import GRACE_SECONDS, LEASE_SECONDS, Worker
from holdfast.errors import HoldfastError

log: Final = logging.getLogger("holdfast")

STUCK_SECONDS: Final = 1.0


def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:QUEUE", help="Where the handlers are, as tasks:queue.")],
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Only the handler of this one. May be given again.", autocompletion=topics_that_begin),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=256, help="So many; one that dies is replaced.")] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Begin anew when a source changes, for development.")
    ] = False,
    lease: Annotated[float, typer.Option(help="Seconds until a dead worker's jobs come back.")] = LEASE_SECONDS,
    grace: Annotated[float, typer.Option(help="Seconds that handlers have after SIGTERM.")] = GRACE_SECONDS,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run handlers. SIGTERM lets those that run come to their end; a second one gives their jobs back at once."""
    who = "%(name)s %(process)d" if supervised else "%(name)s"
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {who} %(message)s")
    for name in ("httpx", "watchfiles"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if processes > 1 or reload:
        words = [target, *(f"--topic={name}" for name in topic or ()), f"--lease={lease}", f"--grace={grace}"]
        raise typer.Exit(_supervise([*words, "--supervised"], processes, grace, reload))
    try:
        made = Worker(_queue(target), topics=topic, lease=lease, grace=grace)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if supervised:
        threading.Thread(target=_stop_with_parent, args=(made,), daemon=True).start()
    raise typer.Exit(asyncio.run(_run(made)))


def _supervise(words: list[str], count: int, grace: float, reload: bool) -> int:
    """Workers below this process; the exit code."""
    if sys.platform == "win32":
        raise typer.BadParameter("--processes and --reload need signals, which Windows has not.")
    if reload and not CAN_RELOAD:
        raise typer.BadParameter("--reload needs the package's extra: reload.")
    return asyncio.run(Processes(words, count, grace=grace, reload=reload).run())


def _stop_with_parent(worker: Worker) -> None:
    """stdin is a pipe from the parent. Nothing comes by it; it ends when the parent does."""
    while os.read(0, 1):
        pass
    worker.stop()


def _queue(target: str) -> Queue:
    """The queue that `module:name` means, from the working directory too. Raises ValueError."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise ValueError(f"{target!r} is not of the form module:queue")
    sys.path.insert(0, "")
    try:
        queue = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise ValueError(f"there is no module {error.name}") from error
        raise
    except AttributeError as error:
        raise ValueError(f"{module} has no {name}") from error
    if not isinstance(queue, Queue):
        raise ValueError(f"{target} is a {type(queue).__name__}, and no Queue")
    return queue


async def _run(worker: Worker) -> int:
    """The exit code. Handlers have had their time when this returns: what of them is still there, as a thread that does
    not end, has no more than STUCK_SECONDS. asyncio.run and the interpreter would wait for it for ever."""
    code = 1
    try:
        await worker.run()
        code = 0
    except HoldfastError as error:
        log.error("The worker ends: %s", error)
    except Exception:
        log.exception("The worker failed")
    finally:
        last = threading.Timer(STUCK_SECONDS, _leave, (code,))
        last.daemon = True
        last.start()
    return code


def _leave(code: int) -> None:
    logging.shutdown()
    os._exit(code)
