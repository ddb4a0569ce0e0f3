"""What all commands share: a client, and errors as a line and an exit code."""

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
    """How a command ends. docs/cli.md."""

    DONE = 0
    REFUSED = 1  # the service said no, or did a part
    USAGE = 2
    NOTHING = 3  # what was asked for is not there
    AWAY = 4  # nobody answered, or the service can't just now: try again later
    INTERRUPTED = 130
    BROKEN_PIPE = 141


FAULTS: Final = 500  # and above: not what was asked for is at fault
PERSONS_RETRIES: Final = 2  # a person who waits would rather be told

# Errors that may be over at another time.
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
    """What a command refuses by itself, said as if by the service."""

    def __init__(self, code: str, message: str, hint: str = "", exit: Exit = Exit.REFUSED) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.exit = exit


@contextmanager
def session(as_json: bool, *, patient: bool = False) -> Iterator[tuple[Client, Output]]:
    """A client and where to print, for one command: its errors become a line on stderr and an exit code. A `patient`
    one is as persistent as a program's."""
    out = Output(as_json)
    with ending(out), _client(patient) as client:
        yield client, out


@contextmanager
def ending(out: Output) -> Iterator[None]:
    """What ends a command becomes its exit code."""
    try:
        yield
        sys.stdout.flush()
    except errors.HoldfastError as error:
        code, said = described(error)
        hint = f" Hint: {said['hint']}" if said["hint"] else ""
        if said.get("status", 0) >= FAULTS and said["request_id"] and said["request_id"] not in said["message"]:
            hint = f" Request {said['request_id']}.{hint}"  # for whoever reads the service's log
        message = said["message"] if said["message"].endswith((".", "?", "!")) else f"{said['message']}."
        out.warn({"error": said}, f"error: {said['code']}: {message}{hint}")
        raise typer.Exit(code) from None
    except UnicodeEncodeError as error:
        why = f"{error.object[error.start : error.end]!r} is in no Unicode text."
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
    """Nobody reads any more: what is still in the buffer must not be an error when Python ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def described(error: errors.HoldfastError) -> tuple[Exit, dict[str, Any]]:
    """The exit code of an error, and what is said of it: code, message, hint, and what the service says in detail."""
    said: dict[str, Any] = {"code": _CODES.get(type(error), "error"), "message": str(error), "hint": _hint(error)}
    code = Exit.AWAY if isinstance(error, PASSING) else Exit.REFUSED
    match error:
        case Refused():
            said["code"], code = error.code, error.exit
        case errors.APIStatusError():
            said |= {"code": error.code or f"http_{error.status}", "message": error.message, "status": error.status}
            said |= {"detail": dict(error.detail), "request_id": error.request_id}
            code = Exit.NOTHING if isinstance(error, errors.NotFound) else code
    return code, said


def _hint(error: errors.HoldfastError) -> str:
    """What to do about it, where that can be said."""
    hint = ""
    match error:
        case Refused():
            hint = error.hint
        case errors.TopicNotFound(detail={"topic": topic}):
            hint = f"`holdfast topics list` shows those there are; `holdfast topics put {topic}` makes it."
        case errors.Draining(detail={"topic": topic}):
            hint = f"`holdfast resume {topic}` ends that."
        case errors.NotAQueue():
            hint = "`holdfast tail` reads a log."
        case errors.Throttled() | errors.Unavailable() if error.retry_after:
            hint = f"Try again in {error.retry_after:g} s."
        case errors.APIConnectionError() | errors.InvalidResponse():
            url = account_of(None, None, None).base_url  # as it may be shown
            said = "is" if os.environ.get("HOLDFAST_URL") else "is not set, so this asked"
            hint = f"HOLDFAST_URL {said} {url}."
    return hint


def confirm(question: str) -> None:
    """Go on only if it is meant. Without a terminal nobody can be asked."""
    if not sys.stdin.isatty():
        raise Refused("not_confirmed", f"{question} There is no terminal to ask at.", "say --yes.", Exit.USAGE)
    try:
        sure = typer.confirm(visible(question), err=True)
    except typer.Abort:  # Ctrl-C or Ctrl-D
        raise typer.Exit(Exit.INTERRUPTED) from None
    if not sure:
        raise typer.Exit(Exit.REFUSED)
