"""`holdfast objects`: payloads in object storage that no job refers to any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

from holdfast._cli.output import console
from holdfast._cli.params import Json, example, milliseconds
from holdfast._cli.session import Exit, Refused, session
from holdfast._garbage import LEAST_AGE, collect
from holdfast._objects import PREFIX, Objects

app = typer.Typer(no_args_is_help=True, help="Payloads in object storage.")


@app.callback()
def objects() -> None:
    """A group, though it has one command."""


@app.command(epilog=example("holdfast objects gc s3://payloads --older-than 2d --remove"))
def gc(
    store: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="As s3://bucket or file:///folder; options come from AWS_REGION and the like."
        ),
    ],
    prefix: Annotated[str, typer.Option(help="Of Objects(prefix=…). One service's alone.")] = PREFIX,
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Leave what is younger; an hour at least.")] = "1d",
    remove: Annotated[bool, typer.Option("--remove", help="Remove them. Without this they are counted.")] = False,
    as_json: Json = False,
) -> None:
    """Find objects that no job refers to, and remove them: with a key of all topics, as all of them are read."""
    age = timedelta(milliseconds=milliseconds(older_than))
    if age < LEAST_AGE:
        raise typer.BadParameter("--older-than is an hour at least: objects are there before their jobs are.")
    with session(as_json, patient=True) as (client, out):
        kept = _objects(store, prefix)
        progress = Progress(TextColumn("{task.description}"), BarColumn(), console=console(stderr=True), transient=True)
        with progress:
            bar = progress.add_task("objects", total=None)

            def tell(what: str, count: int) -> None:
                progress.update(bar, description=f"{what}: {count:,}")

            found = collect(client, kept, older_than=age, remove=remove, tell=tell)
        done = "were removed" if remove else "could be removed: say --remove"
        out.did(
            found,
            f"{found.objects:,} objects: {found.kept:,} are referred to, {found.young:,} are too young to tell, "
            f"{found.garbage:,} with {found.bytes:,} bytes {done}.",
        )


def _objects(url: str, prefix: str) -> Objects:
    try:
        from obstore.store import from_url  # noqa: PLC0415
    except ImportError:
        raise Refused("no_obstore", "This needs the package's extra: objects.", exit=Exit.USAGE) from None
    try:
        store: Any = from_url(url)
    except Exception:  # the store's are of many kinds, and their words may have the password
        shown = url.rpartition("@")[2].partition("?")[0]
        why = f"{shown} is no object storage: that is s3://bucket, gs://bucket, az://container or file:///folder."
        raise Refused("bad_store", why, exit=Exit.USAGE) from None
    try:
        return Objects(store, prefix=prefix)
    except ValueError as error:
        raise typer.BadParameter(f"--prefix: {error}") from error
