"""`holdfast objects`: deletes payloads in object storage that no job refers to."""

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
    """Makes this a group, although it has one command."""


@app.command(epilog=example("holdfast objects gc s3://payloads --older-than 2d --remove"))
def gc(
    store: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="Such as s3://bucket or file:///folder. Set options with AWS_REGION and the like."
        ),
    ],
    prefix: Annotated[str, typer.Option(help="The prefix of Objects(prefix=…), used by one service only.")] = PREFIX,
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Least age of the objects, at least an hour.")] = "1d",
    remove: Annotated[bool, typer.Option("--remove", help="Delete the objects instead of counting them.")] = False,
    as_json: Json = False,
) -> None:
    """Find objects that no job refers to, and delete them. Reads all topics, so it needs a key for all of them."""
    age = timedelta(milliseconds=milliseconds(older_than))
    if age < LEAST_AGE:
        raise typer.BadParameter("--older-than must be at least an hour: objects are written before their jobs.")
    with session(as_json, patient=True) as (client, out):
        kept = _objects(store, prefix)
        progress = Progress(TextColumn("{task.description}"), BarColumn(), console=console(stderr=True), transient=True)
        with progress:
            bar = progress.add_task("objects", total=None)

            def tell(what: str, count: int) -> None:
                progress.update(bar, description=f"{what}: {count:,}")

            found = collect(client, kept, older_than=age, remove=remove, tell=tell)
        done = "were deleted" if remove else "can be deleted with --remove"
        out.did(
            found,
            f"{found.objects:,} objects: {found.kept:,} have a job, {found.young:,} are too young to check, "
            f"{found.garbage:,} with {found.bytes:,} bytes {done}.",
        )


def _objects(url: str, prefix: str) -> Objects:
    try:
        from obstore.store import from_url  # noqa: PLC0415
    except ImportError:
        raise Refused("no_obstore", "This needs the package's extra: objects.", exit=Exit.USAGE) from None
    try:
        store: Any = from_url(url)
    except Exception:  # stores raise many kinds, and their messages may have the password
        address = url.rpartition("@")[2].partition("?")[0]
        why = f"{address} is not object storage. Use s3://bucket, gs://bucket, az://container or file:///folder."
        raise Refused("bad_store", why, exit=Exit.USAGE) from None
    try:
        return Objects(store, prefix=prefix)
    except ValueError as error:
        raise typer.BadParameter(f"--prefix: {error}") from error
