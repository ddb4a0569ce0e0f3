"""What a filter of jobs says: `state:ready tenant:acme key:"order 17" data.items.0.sku:a7 older:10m`. docs/admin.md.

A word is a name, a colon (or =, with blanks around it or not) and a value; all of them must hold. A value with a space
or a quote stands in quotes, where a backslash takes the next character as it is. Which words there are is what the
API's list of jobs takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from app.base.times import parse_length
from app.errors import InvalidRequest
from app.features.jobs.requests import STATES, data_of, path_of
from app.kernel.jobs import Match

WORDS: Final = ("state", "priority", "tenant", "tag", "key", "group", "node", "error", "older")
DATA: Final = "data."  # how words begin that are about payloads; a path follows
MOST: Final = 1_000  # characters
_WORD: Final = re.compile(
    r'\s*(?P<name>(?:\\.|[^\s:="\\])*)(?P<colon>\s+=\s+|[:=]?)(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|\Z)', re.DOTALL
)
_PLAIN: Final = re.compile(r'[^\s"]+\Z')


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
        if name not in WORDS and not name.startswith(DATA):
            known = f"{', '.join(WORDS)} and {DATA}path"
            raise InvalidRequest(f"There is no word {_short(name)} in this filter. There are {known}.")
        if name in found:
            raise InvalidRequest(f"{_short(name)} is there twice. A job has one.")
        if not value:
            raise InvalidRequest(f'{_short(name)}: needs a value; "" is an empty one.')
        found[name] = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[0] == '"' else value
    return found


def text_of(values: Mapping[str, str]) -> str:
    """The filter that says this, in the order of WORDS."""
    names = [*(name for name in WORDS if name in values), *(name for name in values if name.startswith(DATA))]
    return " ".join(f"{name}:{quoted(values[name])}" for name in names)


def parameters(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The same by the parameters of the API's list, and what its `data` are. Raises InvalidRequest."""
    given = {name: value for name, value in values.items() if name != "older" and not name.startswith(DATA)}
    if "older" in values:
        given["older_than_ms"] = str(milliseconds(values["older"]))
    data = [f"{name.removeprefix(DATA)}={value}" for name, value in values.items() if name.startswith(DATA)]
    return given, data


def words_of(match: Match) -> str:
    """The filter that says what a match does."""
    names = ("priority", "tenant", "tag", "key", "group", "node", "error")
    values = {name: str(value) for name in names if (value := getattr(match, name)) is not None}
    if match.states is not None:
        values["state"] = match.states[0]  # there is one, where a filter names any
    if match.older_than_ms is not None:
        values["older"] = f"{match.older_than_ms}ms"
    return text_of(values | {f"{DATA}{path_of(one.path)}": one.value for one in match.data})


def milliseconds(text: str) -> int:
    """How long that is: a whole number of ms, s, m, h or d. Raises InvalidRequest."""
    length = parse_length(text)
    if length is None:
        raise InvalidRequest(f"{_short(text)} is no length of time: 500ms, 30s, 10m, 2h and 7d are.")
    return length


def completions(text: str, seen: Sequence[str] = ()) -> list[str]:
    """What could stand there: the filter with one word more that it lacks, or a first one. `seen`: words that jobs
    before one's eyes would have, whole or up to the value."""
    try:
        before, values = text.strip(), parse(text)
        data_of(parameters(values)[1])
    except InvalidRequest:
        before, values = "", {}
    words = [f"state:{state}" for state in STATES] + ["older:10m", "older:1h", "older:1d", *seen]
    words += [f"{name}:" for name in WORDS if name not in {"state", "older"}]
    return [f"{before} {word}".strip() for word in words if _name(word) not in values]


def _name(word: str) -> str:
    found = _WORD.match(word)
    return found["name"] if found else ""


def quoted(value: str) -> str:
    """A value as a word has it."""
    if _PLAIN.match(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:60]}…"
