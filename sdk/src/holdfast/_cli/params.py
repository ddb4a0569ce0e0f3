"""Arguments and options that several commands have, and how their words are read."""

from __future__ import annotations

import getpass
import platform
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from holdfast import errors
from holdfast._cli import lines
from holdfast._cli.lines import loads
from holdfast._client import Client

COMPLETION_SECONDS: Final = 1.0
COMPLETED: Final = 50
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def topics_that_begin(incomplete: str) -> list[str]:
    """Topics for the shell to offer: those of the service, if it answers soon."""
    try:
        with Client(timeout=COMPLETION_SECONDS, attempt_timeout=COMPLETION_SECONDS, retries=0) as client:
            return [one.topic for one in client.topics.list(prefix=incomplete, page_size=COMPLETED).page().items]
    except (errors.HoldfastError, ValueError):
        return []


def milliseconds(text: str) -> int:
    """A time: 500ms, 20s, 5m, 2h, 1d; a number alone is seconds."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        ms = round(float(number) * _UNITS[text[len(number) :] or "s"])
    except (KeyError, ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no time, such as 500ms, 20s, 5m, 2h or 1d.") from None
    if ms < 0:
        raise typer.BadParameter(f"{text!r} is less than nothing.")
    return ms


def moment(text: str) -> datetime:
    """A time with its zone, as RFC 3339 has it."""
    try:
        return lines.moment(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def json_value(text: str) -> Any:
    """JSON."""
    try:
        return loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r:.80} is no JSON: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{text!r:.80} is no JSON object.")
    return value


def json_or_text(text: str) -> Any:
    """JSON, where it is; else the text."""
    try:
        return loads(text)
    except ValueError:
        return text


def own_name() -> str:
    """Who claims: the same in each call, so that a later one can settle."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's number without a name
        user = "nobody"
    return f"cli:{user}@{platform.node()}"[:128]


Json = Annotated[bool, typer.Option("--json", help="Print JSON: one object a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topics_that_begin, show_default=False)]
Seq = Annotated[int, typer.Argument(metavar="SEQ", help="The job's number in its topic.", show_default=False)]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant alone.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")]
Node = Annotated[
    str | None,
    typer.Option(envvar="HOLDFAST_NODE", help="Who claims: cli:<user>@<host> if not said.", show_default=False),
]


def time_option(help: str) -> Any:
    """An option that is a time, in milliseconds."""
    return typer.Option(parser=milliseconds, metavar="TIME", help=help, show_default=False)


def example(line: str) -> str:
    """What stands below the help of a command."""
    return f"Example: {line}"


# Which jobs of a topic: the filter of whatever takes one.
With = Annotated[str | None, typer.Option(help="Only those with it.", show_default=False)]
Of = Annotated[str | None, typer.Option(help="Only those of it.", show_default=False)]
OfPriority = Annotated[int | None, typer.Option(min=-32_768, max=32_767, help="Only those of it.", show_default=False)]
HeldBy = Annotated[str | None, typer.Option(help="Only those that it holds.", show_default=False)]
ErrorHas = Annotated[str | None, typer.Option(help="A part of the last error.", show_default=False)]
DataHas = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH=VALUE", help="What is in the payload. May be given again.", show_default=False),
]
OlderThan = Annotated[int | None, time_option("Enqueued so long ago, or earlier.")]
