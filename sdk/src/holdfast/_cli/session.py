"""Shared by all commands: the client, and error messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any, Final

import typer

from holdfast import errors
from holdfast._cli.output import Output, visible
from holdfast._client import Client, account_of


class Exit(IntEnum):
    """Exit codes. docs/cli.md."""

    DONE = 0
    REFUSED = 1  # the service refused the call, or a part of it
    USAGE = 2
    NOTHING = 3  # nothing was found
    AWAY = 4  # the service is unreachable or unavailable: try again later
    INTERRUPTED = 130
    BROKEN_PIPE = 141


FAULTS: Final = 500  # statuses from here on are the service's errors
PERSONS_RETRIES: Final = 2  # few, because a person is waiting

# Temporary errors.
PASSING: Final = (
    *(errors.APIConnectionError, errors.InvalidResponse),
    *(errors.Throttled, errors.Unavailable, errors.InternalError),
)
_CODES: Final[Mapping[type[errors.HoldfastError], str]] = {
    errors.APIConnectionError: "unreachable",
    errors.APITimeoutError: "timeout",
    errors.InvalidResponse: "invalid_response",
}


class Refused(errors.HoldfastError):
    """An error of a command itself, reported like one of the service's."""

    def __init__(self, code: str, message: str, hint: str = "", exit: Exit = Exit.REFUSED) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.exit = exit


@contextmanager
def session(as_json: bool, *, patient: bool = False) -> Iterator[tuple[Client, Output]]:
    """The client and output of a command. Errors become a line on stderr and an exit code. `patient`: retry as often as
    a program would."""
    out = Output(as_json)
    with ending(out), _client(patient) as client:
        yield client, out


@contextmanager
def ending(out: Output) -> Iterator[None]:
    """Turn exceptions into exit codes."""
    try:
        yield
        sys.stdout.flush()
    except errors.HoldfastError as error:
        code, fields = described(error)
        hint = f" Hint: {fields['hint']}" if fields["hint"] else ""
        if fields.get("status", 0) >= FAULTS and fields["request_id"] and fields["request_id"] not in fields["message"]:
            hint = f" Request {fields['request_id']}.{hint}"  # to find it in the service's log
        message = fields["message"] if fields["message"].endswith((".", "?", "!")) else f"{fields['message']}."
        out.warn({"error": fields}, f"error: {fields['code']}: {message}{hint}")
        raise typer.Exit(code) from None
    except UnicodeEncodeError as error:
        why = f"{error.object[error.start : error.end]!r} is not valid Unicode."
        out.warn({"error": {"code": "no_unicode", "message": why}}, f"error: no_unicode: {why}")
        raise typer.Exit(Exit.USAGE) from None
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        _close_stdout()
        raise typer.Exit(Exit.BROKEN_PIPE) from None


def _client(patient: bool) -> Client:
    try:
        return Client() if patient else Client(retries=PERSONS_RETRIES)
    except ValueError as error:
        raise Refused("bad_url", f"HOLDFAST_URL: {error}.", exit=Exit.USAGE) from error


def _close_stdout() -> None:
    """Discard buffered output after the reader has closed the pipe, so that Python raises no error at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def described(error: errors.HoldfastError) -> tuple[Exit, dict[str, Any]]:
    """The exit code of an error, and its code, message, hint and the service's detail."""
    fields: dict[str, Any] = {"code": _CODES.get(type(error), "error"), "message": str(error), "hint": _hint(error)}
    code = Exit.AWAY if isinstance(error, PASSING) else Exit.REFUSED
    match error:
        case Refused():
            fields["code"], code = error.code, error.exit
        case errors.APIStatusError():
            fields |= {"code": error.code or f"http_{error.status}", "message": error.message, "status": error.status}
            fields |= {"detail": dict(error.detail), "request_id": error.request_id}
            code = Exit.NOTHING if isinstance(error, errors.NotFound) else code
    return code, fields


def _hint(error: errors.HoldfastError) -> str:
    """What to do about an error, or ""."""
    hint = ""
    match error:
        case Refused():
            hint = error.hint
        case errors.TopicNotFound(detail={"topic": topic}):
            hint = f"`holdfast topics list` lists all topics, `holdfast topics put {topic}` creates this one."
        case errors.Draining(detail={"topic": topic}):
            hint = f"Resume it with `holdfast resume {topic}`."
        case errors.NotAQueue():
            hint = "`holdfast tail` reads a log."
        case errors.Throttled() | errors.Unavailable() if error.retry_after:
            hint = f"Try again in {error.retry_after:g} s."
        case errors.APIConnectionError() | errors.InvalidResponse():
            url = account_of(None, None, None).base_url  # without the password
            verb = "is" if os.environ.get("HOLDFAST_URL") else "is not set. The default is"
            hint = f"HOLDFAST_URL {verb} {url}."
    return hint


def confirm(question: str) -> None:
    """Ask for confirmation. Raises Refused without a terminal."""
    if not sys.stdin.isatty():
        raise Refused("not_confirmed", f"{question} There is no terminal to ask.", "Use --yes.", Exit.USAGE)
    try:
        sure = typer.confirm(visible(question), err=True)
    except typer.Abort:  # Ctrl-C or Ctrl-D
        raise typer.Exit(Exit.INTERRUPTED) from None
    if not sure:
        raise typer.Exit(Exit.REFUSED)
