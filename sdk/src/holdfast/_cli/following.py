"""Waits for the end of an operation."""

from __future__ import annotations

import time
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from holdfast import errors, models
from holdfast._cli.output import Output, console
from holdfast._client import Client

LOOK_SECONDS: Final = 0.25


def wait_for(client: Client, id: str, out: Output) -> models.Operation:
    """Wait until an operation has ended, with a progress bar in a terminal. If this is interrupted, the operation
    continues."""
    screen = console(stderr=True)
    hidden = out.as_json or not screen.is_terminal
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=screen, disable=hidden, transient=True) as bar:
            task = bar.add_task("", total=None)
            while not (operation := client.operations.get(id)).over:
                done = operation.requeued + operation.gone + operation.marked + operation.skipped
                bar.update(task, completed=done, total=operation.matched if operation.exact else None)
                time.sleep(LOOK_SECONDS)
    except (KeyboardInterrupt, errors.HoldfastError):
        out.note(f"Operation {id} continues in the background.")
        raise
    return operation
