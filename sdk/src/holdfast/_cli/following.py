"""Waiting for the end of an operation: a requeue or a cancel of many."""

from __future__ import annotations

import time
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from holdfast import errors, models
from holdfast._cli.output import Output, console
from holdfast._client import Client

LOOK_SECONDS: Final = 0.25


def followed(client: Client, id: str, out: Output) -> models.Operation:
    """An operation's end, with a bar where somebody looks. Whatever ends this command leaves it to itself."""
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
        out.note(f"Operation {id} goes on.")
        raise
    return operation
