"""`holdfast topics`."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from holdfast import errors, models
from holdfast._cli.output import fields
from holdfast._cli.params import Json, Limit, TopicName, Yes, example, json_object, json_or_text
from holdfast._cli.session import Exit, Refused, confirm, session
from holdfast._client import SyncTopic

app = typer.Typer(no_args_is_help=True, help="Create, show, change and delete topics.")

SETTINGS: Final = sorted(field.name for field in dataclasses.fields(models.TopicConfig))
# Settings whose default follows from another setting.
FOLLOWS: Final = {"durability": "durable", "on_exhausted": "dead_letter"}


def _settings_that_begin(incomplete: str) -> list[str]:
    return [f"{name}=" for name in SETTINGS if name.startswith(incomplete)]


Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SETTING=VALUE",
        help='Such as lease_ms=60000, dead_letter=mail.dead, backoff=\'{"kind": "fixed"}\'.',
        autocompletion=_settings_that_begin,
        show_default=False,
    ),
]
SettingsFile = Annotated[
    typer.FileText | None,
    typer.Option("--file", "-f", help="A file with settings as a JSON object; -: stdin.", show_default=False),
]


@app.command("list", epilog=example("holdfast topics list --prefix mail"))
def list_topics(
    prefix: Annotated[str | None, typer.Option(help="Only names with this prefix.", show_default=False)] = None,
    limit: Limit = 1_000,
    as_json: Json = False,
) -> None:
    """List topics by name."""
    with session(as_json) as (client, out):
        found = itertools.islice(client.topics.list(prefix=prefix), limit)
        if not out.many(found, "topic", "count", "bytes", "head_seq", "durable"):
            out.note("There are no topics.")


@app.command(epilog=example("holdfast topics show mail"))
def show(topic: TopicName, as_json: Json = False) -> None:
    """Show a topic's settings and counts."""
    with session(as_json) as (client, out):
        state = client.topic(topic).get(touch=False)
        if as_json:
            out.one(state)
            return
        shown = dict(fields(state))
        queue, config = shown.pop("queue"), shown.pop("config")
        out.one(shown | (dict(fields(queue)) if queue else {}))
        out.say("")
        out.one(config)


@app.command(epilog=example("holdfast topics put mail max_deliveries=5 dead_letter=mail.dead"))
def put(
    topic: TopicName,
    settings: Settings = None,
    file: SettingsFile = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing topic's settings; others get their defaults.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a topic. By default it is a durable queue with 20 deliveries, growing pauses and a dead-letter topic. An
    existing topic is only changed with --replace."""
    given = _given_settings(settings, file)
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if not replace and _exists(named):
            hint = "`topics configure` changes some settings, --replace all."
            raise Refused("already_exists", f"Topic {topic!r} already exists.", hint)
        done = named.put(_changed(models.TopicConfig(), given))
        out.did(done, f"{topic} {'created' if done.created else 'changed'}.")


def _exists(topic: SyncTopic) -> bool:
    try:
        topic.get(touch=False)
    except errors.TopicNotFound:
        return False
    return True


@app.command(epilog=example("holdfast topics configure mail lease_ms=60000"))
def configure(topic: TopicName, settings: Settings = None, file: SettingsFile = None, as_json: Json = False) -> None:
    """Change settings of a topic. Others stay unchanged. SETTING=null restores the default."""
    given = _given_settings(settings, file)
    with session(as_json) as (client, out):
        named = client.topic(topic)
        done = named.put(_changed(named.get(touch=False).config, given))
        out.did(done, f"{topic} changed.")


@app.command(epilog=example("holdfast topics delete mail --if-empty"))
def delete(
    topic: TopicName,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if it is empty.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a topic with all its jobs or records."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if not (if_empty or yes):
            confirm(f"Delete {topic} with about {named.get(touch=False).count} jobs or records?")
        done = named.delete(if_empty=if_empty)
        out.did(done, f"{topic} is deleted." if done.deleted else f"There is no topic {topic}.")
        if not done.deleted:
            raise typer.Exit(Exit.NOTHING)


def _given_settings(settings: list[str] | None, file: typer.FileText | None) -> dict[str, Any]:
    """The settings in the arguments and the file."""
    given = json_object(file.read()) if file else {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals:
            raise typer.BadParameter(f"{setting!r} must have the form SETTING=VALUE.")
        given[name] = json_or_text(value)
    for name in given.keys() - set(SETTINGS):
        near = difflib.get_close_matches(name, SETTINGS, 1)
        raise typer.BadParameter(f"There is no setting {name!r}." + (f" Did you mean {near[0]}?" if near else ""))
    return given


def _changed(config: models.TopicConfig, given: Mapping[str, Any]) -> models.TopicConfig:
    """Settings with changes. The service validates them."""
    reopened: dict[str, Any] = {name: None for name, of in FOLLOWS.items() if of in given}
    return dataclasses.replace(config, **{**reopened, **given})
