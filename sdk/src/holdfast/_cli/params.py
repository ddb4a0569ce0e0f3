"""Arguments and options shared by commands, and their parsers."""

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
    """Topics for the shell's completion; none if the service does not answer soon."""
    try:
        with Client(timeout=COMPLETION_SECONDS, attempt_timeout=COMPLETION_SECONDS, retries=0) as client:
            return [one.topic for one in client.topics.list(prefix=incomplete, page_size=COMPLETED).page().items]
    except (errors.HoldfastError, ValueError):
        return []


def milliseconds(text: str) -> int:
    """Parse a duration: 500ms, 20s, 5m, 2h, 1d; a number alone is in seconds."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        ms = round(float(number) * _UNITS[text[len(number) :] or "s"])
    except (KeyError, ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is not a time. Write it like 500ms, 20s, 5m, 2h or 1d.") from None
    if ms < 0:
        raise typer.BadParameter(f"{text!r} must not be negative.")
    return ms


def moment(text: str) -> datetime:
    """Parse an RFC 3339 time with a zone."""
    try:
        return lines.moment(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def json_value(text: str) -> Any:
    """Parse JSON."""
    try:
        return loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r:.80} is not JSON: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{text!r:.80} is not a JSON object.")
    return value


def json_or_text(text: str) -> Any:
    """Parse JSON; other text is returned as it is."""
    try:
        return loads(text)
    except ValueError:
        return text


def own_name() -> str:
    """The default node: the same in each call, so that a later one can settle."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "nobody"
    return f"cli:{user}@{platform.node()}"[:128]


Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topics_that_begin, show_default=False)]
Seq = Annotated[int, typer.Argument(metavar="SEQ", help="The job's number in its topic.", show_default=False)]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most items to list.")]
Node = Annotated[
    str | None,
    typer.Option(envvar="HOLDFAST_NODE", help="The worker's name. Default: cli:<user>@<host>.", show_default=False),
]


def time_option(help: str) -> Any:
    """An option with a duration, in milliseconds."""
    return typer.Option(parser=milliseconds, metavar="TIME", help=help, show_default=False)


def example(line: str) -> str:
    """The line below a command's help."""
    return f"Example: {line}"


# Options of a filter of jobs.
With = Annotated[str | None, typer.Option(help="Only jobs with this one.", show_default=False)]
Of = Annotated[str | None, typer.Option(help="Only jobs of this one.", show_default=False)]
OfPriority = Annotated[
    int | None, typer.Option(min=-32_768, max=32_767, help="Only jobs with this priority.", show_default=False)
]
HeldBy = Annotated[str | None, typer.Option(help="Only jobs that this worker holds.", show_default=False)]
ErrorHas = Annotated[str | None, typer.Option(help="Only jobs with this text in the last error.", show_default=False)]
DataHas = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH=VALUE", help="Only jobs with this value in the payload. Repeatable.", show_default=False
    ),
]
OlderThan = Annotated[int | None, time_option("Only jobs enqueued at least this long ago.")]
