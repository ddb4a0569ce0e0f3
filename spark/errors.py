"""What a user can mend: shown as one line, without a trace."""

from __future__ import annotations

import re
from typing import Final

PY4J: Final = "An error occurred while calling "  # and what, which says nothing


class Mistake(Exception):
    """An argument, a file or a setting that can't work; the text says which, and what would."""


def told(error: BaseException) -> str | None:
    """What a Mistake says that was made in one of Spark's Python processes: Spark hands on its trace as text."""
    found = re.findall(rf"^.*\b{Mistake.__module__}\.{Mistake.__name__}: (.*)$", str(error), re.MULTILINE)
    return found[-1].strip() if found else None


def reason(error: BaseException) -> str:
    """What a failure says to a person, in one line: a Mistake of one of Spark's processes, or its first line."""
    lines = (line.removeprefix(": ") for line in str(error).splitlines() if not line.startswith(PY4J))
    return told(error) or next((line for line in lines if line.strip()), repr(error))
