"""Errors that a user can fix, printed as one line without a traceback."""

from __future__ import annotations

import re
from typing import Final

PY4J: Final = "An error occurred while calling "


class Mistake(Exception):
    """An argument, a file or a setting is invalid. The text names it and says what is valid."""


def mistake_text(error: BaseException) -> str | None:
    """The text of a Mistake in the traceback of one of Spark's Python processes; None if there is none."""
    found = re.findall(rf"^.*\b{Mistake.__module__}\.{Mistake.__name__}: (.*)$", str(error), re.MULTILINE)
    return found[-1].strip() if found else None


def reason(error: BaseException) -> str:
    """An error in one line: the Mistake within it, or its first line."""
    lines = (line.removeprefix(": ") for line in str(error).splitlines() if not line.startswith(PY4J))
    return mistake_text(error) or next((line for line in lines if line.strip()), repr(error))
