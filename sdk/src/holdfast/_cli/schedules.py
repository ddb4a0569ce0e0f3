"""`holdfast schedules`."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import typer

from holdfast import models
from holdfast._cli.output import cell
from holdfast._cli.params import Json, Limit, TopicName, Yes, example, json_value
from holdfast._cli.session import confirm, session
from holdfast.models.schedules import Missed

app = typer.Typer(no_args_is_help=True, help="Schedules, which enqueue jobs at set times.")

Name = Annotated[str, typer.Argument(show_default=False)]


@app.command("list", epilog=example("holdfast schedules list"))
def list_schedules(
    prefix: Annotated[str | None, typer.Option(help="Only names with this prefix.", show_default=False)] = None,
    limit: Limit = 1_000,
    as_json: Json = False,
) -> None:
    """List schedules by name."""
    with session(as_json) as (client, out):
        found = itertools.islice(client.schedules.list(prefix=prefix), limit)
        if not out.many(found, "name", "topic", "cron", "time_zone", "paused", "next_fire", "fires", "last_error"):
            out.note("There are no schedules.")


@app.command(epilog=example("holdfast schedules show nightly"))
def show(name: Name, as_json: Json = False) -> None:
    """Show a schedule and its next times."""
    with session(as_json) as (client, out):
        out.one(client.schedules.get(name))


@app.command(epilog=example("holdfast schedules put nightly reports '30 2 * * *' '{}' --time-zone Europe/Berlin"))
def put(
    name: Name,
    topic: TopicName,
    cron: Annotated[str, typer.Argument(help="A cron expression of five fields, in quotes.", show_default=False)],
    data: Annotated[Any, typer.Argument(metavar="DATA", parser=json_value, help="JSON.", show_default=False)],
    *,
    tag: Annotated[str | None, typer.Option(help="The jobs' tag.", show_default=False)] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=9, help="0 to 9.", show_default=False)] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="An IANA name, such as Europe/Berlin. Default: UTC.", show_default=False)
    ] = None,
    missed: Annotated[Missed | None, typer.Option(help="What to do about missed times.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Create or replace a schedule."""
    with session(as_json) as (client, out):
        record = models.Record(data=data, tag=tag, priority=priority)
        made = client.schedules.put(name, topic=topic, cron=cron, record=record, time_zone=time_zone, missed=missed)
        out.did(made, f"{name} runs next at {cell('at', made.next_fire)}.")


@app.command(epilog=example("holdfast schedules pause nightly"))
def pause(name: Name, as_json: Json = False) -> None:
    """Pause a schedule: it enqueues no jobs until you resume it."""
    with session(as_json) as (client, out):
        out.did(client.schedules.pause(name), f"{name} is paused.")


@app.command(epilog=example("holdfast schedules resume nightly"))
def resume(name: Name, as_json: Json = False) -> None:
    """Resume a paused schedule."""
    with session(as_json) as (client, out):
        resumed = client.schedules.resume(name)
        out.did(resumed, f"{name} runs next at {cell('at', resumed.next_fire)}.")


@app.command(epilog=example("holdfast schedules run nightly"))
def run(name: Name, as_json: Json = False) -> None:
    """Enqueue one job of a schedule now."""
    with session(as_json) as (client, out):
        made = client.schedules.run(name)
        out.did(made, f"{made.topic} {made.seq}")


@app.command(epilog=example("holdfast schedules delete nightly --yes"))
def delete(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a schedule. Its jobs stay."""
    with session(as_json) as (client, out):
        if not yes:
            confirm(f"Delete the schedule {name}?")
        client.schedules.delete(name)
        out.did({"name": name, "deleted": True}, f"{name} is deleted.")
