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
    target: Annotated[str, typer.Argument(metavar="MODULE:QUEUE", help="The queue with the handlers, as tasks:queue.")],
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Only this topic's handler. Repeatable.", autocompletion=topics_that_begin),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=256, help="Number of processes. Dead ones are replaced.")] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a source file changes, for development.")
    ] = False,
    lease: Annotated[float, typer.Option(help="Seconds until a dead worker's jobs are ready again.")] = LEASE_SECONDS,
    grace: Annotated[float, typer.Option(help="Seconds for running handlers after SIGTERM.")] = GRACE_SECONDS,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run handlers. On SIGTERM it waits for running handlers. On a second one it returns their jobs at once."""
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
    """Run worker processes. Returns the exit code."""
    if sys.platform == "win32":
        raise typer.BadParameter("--processes and --reload need signals, which Windows does not have.")
    if reload and not CAN_RELOAD:
        raise typer.BadParameter("--reload needs the package's extra: reload.")
    return asyncio.run(Processes(words, count, grace=grace, reload=reload).run())


def _stop_with_parent(worker: Worker) -> None:
    """Stop the worker when the parent ends, which closes the pipe at stdin."""
    while os.read(0, 1):
        pass
    worker.stop()


def _queue(target: str) -> Queue:
    """Import the queue `module:name`, also from the working directory. Raises ValueError."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise ValueError(f"{target!r} must have the form module:queue")
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
        raise ValueError(f"{target} must be a Queue, not a {type(queue).__name__}")
    return queue


async def _run(worker: Worker) -> int:
    """Run the worker. Returns the exit code. The process then exits within STUCK_SECONDS, even if a handler's thread
    does not end: asyncio.run and the interpreter would wait for it forever."""
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
