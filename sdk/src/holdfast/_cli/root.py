"""`holdfast` itself, and what it has."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast._cli import worker
from holdfast._version import __version__

app = typer.Typer(name="holdfast", no_args_is_help=True, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def holdfast(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it.")] = False,
) -> None:
    """The Holdfast job queue service. HOLDFAST_URL and HOLDFAST_API_KEY say where it is."""


# Commands of their own: app.command()(module.function). Groups: app.add_typer(module.app, name="topics").
app.command()(worker.worker)
