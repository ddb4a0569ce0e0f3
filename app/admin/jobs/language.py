"""What a filter of jobs says: `state:ready tenant:acme key:"order 17" older:10m`. docs/admin.md.

A word is a name, a colon and a value; all of them must hold. A value with a space or a quote stands in quotes, where a
backslash takes the next character as it is. Which words there are is what the API's list of jobs takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app.edge.jobs import STATES
from app.errors import InvalidRequest

WORDS: Final = ("state", "tenant", "tag", "key", "group", "older")
MOST: Final = 1_000  # characters
_WORD: Final = re.compile(r'\s*(?P<name>[^\s:"]*)(?P<colon>:?)(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|\Z)', re.DOTALL)
_PLAIN: Final = re.compile(r'[^\s"]+\Z')
_SPAN: Final = re.compile(r"(?P<n>[0-9]{1,12})(?P<unit>ms|s|m|h|d)\Z")
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse(text: str) -> dict[str, str]:
    """The values of the words that it has. Raises InvalidRequest, which names what can't be understood."""
    if len(text) > MOST:
        raise InvalidRequest(f"A filter has {MOST} characters at most.")
    found: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        word = _WORD.match(text, at)
        if word is None:
            raise InvalidRequest(f"A quote is not closed, or something stands right behind one: {_short(text[at:])}")
        name, value, at = word["name"], word["value"], word.end()
        if not word["colon"]:
            raise InvalidRequest(f"{_short(word.group())} is no word:value. The words are {', '.join(WORDS)}.")
        if name not in WORDS:
            raise InvalidRequest(f"There is no word {_short(name)} in this filter. There are {', '.join(WORDS)}.")
        if name in found:
            raise InvalidRequest(f"{name} is there twice. A job has one.")
        if not value:
            raise InvalidRequest(f'{name}: needs a value; "" is an empty one.')
        found[name] = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[0] == '"' else value
    return found


def text_of(values: Mapping[str, str]) -> str:
    """The filter that says this, in the order of WORDS."""
    return " ".join(f"{name}:{_quoted(values[name])}" for name in WORDS if name in values)


def parameters(values: Mapping[str, str]) -> dict[str, str]:
    """The same by the parameters of the API's list. Raises InvalidRequest."""
    given = {name: value for name, value in values.items() if name != "older"}
    if "older" in values:
        given["older_than_ms"] = str(milliseconds(values["older"]))
    return given


def milliseconds(text: str) -> int:
    """How long that is: a whole number of ms, s, m, h or d. Raises InvalidRequest."""
    span = _SPAN.match(text)
    if span is None:
        raise InvalidRequest(f"{_short(text)} is no length of time: 500ms, 30s, 10m, 2h and 7d are.")
    return int(span["n"]) * _UNITS[span["unit"]]


def completions(text: str) -> list[str]:
    """What could stand there: the filter with one word more that it lacks, or a first one."""
    try:
        before, values = text.strip(), parse(text)
    except InvalidRequest:
        before, values = "", {}
    words = [f"state:{state}" for state in STATES] if "state" not in values else []
    words += ["older:10m", "older:1h", "older:1d"] if "older" not in values else []
    words += [f"{name}:" for name in WORDS[1:-1] if name not in values]
    return [f"{before} {word}".strip() for word in words]


def _quoted(value: str) -> str:
    if _PLAIN.match(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:60]}…"
