"""Parses filters of jobs: the parameters of the API's list, and the same as text. docs/admin.md.

Example: `state:ready tenant:acme key:"order 17" data.items.0.sku:a7 older:10m`

A word is a name, a colon and a value. An = may replace the colon, with or without blanks around it. A job must match
all words. A value with a space or a quote must be quoted; in quotes, a backslash escapes the next character. The names
are the parameters of the API's list of jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from app.base.times import parse_length
from app.errors import InvalidRequest
from app.features.jobs.changes import LIVE
from app.http.fields import whole
from app.kernel.jobs import MAX_PATH, MAX_VALUE, Datum, JobMatch
from app.kernel.model import MAX_GROUP, MAX_JOB_KEY, MAX_TAG_BYTES
from app.kernel.topics.settings import MAX_TENANT, TEN_YEARS_MS

STATES: Final = ("ready", "scheduled", "blocked", "leased", "failed", "expired", "cancelled")
MAX_NODE: Final = 128
MAX_ERROR_PART: Final = 1_024
MAX_DATA: Final = 4  # of a filter
MAX_KEYS: Final = 16  # of a path
_LONGEST: Final = {
    "tenant": MAX_TENANT,
    "tag": MAX_TAG_BYTES,
    "key": MAX_JOB_KEY,
    "group": MAX_GROUP,
    "node": MAX_NODE,
    "error": MAX_ERROR_PART,
}
_DATUM: Final = re.compile(r"(?P<path>(?:\\.|[^\\=])+)=(?P<value>.*)\Z", re.DOTALL)
_PATH_KEY: Final = re.compile(r"((?:\\.|[^\\.])+)(?:\.(?!\Z)|\Z)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE: Final = re.compile(r'[\\.=:"\s]')
WORDS: Final = ("state", "priority", "tenant", "tag", "key", "group", "node", "error", "older")
DATA: Final = "data."  # prefix of words that match payloads; a path follows
MOST_CHARACTERS: Final = 1_000  # of a filter
_WORD: Final = re.compile(
    r'\s*(?P<name>(?:\\.|[^\s:="\\])*)(?P<colon>\s+=\s+|[:=]?)(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|\Z)', re.DOTALL
)
_PLAIN: Final = re.compile(r'[^\s"]+\Z')


def match_of(given: Mapping[str, str], data: Sequence[str] = ()) -> JobMatch:
    """The match for parameters of the API's list, with `data` as in data_of. Raises InvalidRequest."""
    state = given.get("state")
    if state is not None and state not in STATES:
        raise InvalidRequest(f"state must be one of {', '.join(STATES)}.")
    for name, most in _LONGEST.items():
        if len(given.get(name, "")) > most:
            raise InvalidRequest(f"{name} must have at most {most} characters.")
        if "\0" in given.get(name, ""):
            raise InvalidRequest(f"{name} must not contain NUL.")
    older = whole(given, "older_than_ms", 0) if "older_than_ms" in given else None
    if older is not None and not 0 <= older <= TEN_YEARS_MS:
        raise InvalidRequest(f"older_than_ms must be 0 to {TEN_YEARS_MS}.")
    priority = whole(given, "priority", 0) if "priority" in given else None
    if priority is not None and not -32_768 <= priority <= 32_767:
        raise InvalidRequest("priority must be -32768 to 32767.")
    return JobMatch(
        states=None if state is None else [state],
        tenant=given.get("tenant"),
        tag=given.get("tag"),
        key=given.get("key"),
        group=given.get("group"),
        older_than_ms=older,
        priority=priority,
        node=given.get("node"),
        error=given.get("error"),
        data=data_of(data),
    )


def data_of(given: Sequence[str]) -> tuple[Datum, ...]:
    """The values that payloads must contain, each `path=value`. Raises InvalidRequest.

    A path is keys and list indexes, separated by dots. A backslash escapes the next character.
    """
    if len(given) > MAX_DATA:
        raise InvalidRequest(f"data can be given at most {MAX_DATA} times.")
    return tuple(map(_datum, given))


def _datum(given: str) -> Datum:
    parts = _DATUM.match(given)
    path, value = (parts["path"], parts["value"]) if parts else ("", "")
    keys: list[str] = []
    at = 0
    while at < len(path) and (key := _PATH_KEY.match(path, at)):
        keys.append(_ESCAPED.sub(r"\1", key[1]))
        at = key.end()
    if not keys or at < len(path):
        raise InvalidRequest(f"data must be path=value, such as items.0.sku=a7. This is not: {given[:80]!r}.")
    if len(path) > MAX_PATH or len(keys) > MAX_KEYS or len(value) > MAX_VALUE:
        raise InvalidRequest(
            f"data is too long: a path may have {MAX_KEYS} keys and {MAX_PATH} characters, a value {MAX_VALUE}."
        )
    if "\0" in given:
        raise InvalidRequest("data must not contain NUL.")
    return Datum(tuple(keys), value)


def path_of(keys: Sequence[str]) -> str:
    """The path for these keys, escaped for a filter."""
    return ".".join(_TO_ESCAPE.sub(lambda one: f"\\{one[0]}", key) for key in keys)


def must_be_live(match: JobMatch) -> JobMatch:
    """Check the filter of a cancel. Raises InvalidRequest if it has no field or asks for jobs that have ended."""
    if match.is_all:
        raise InvalidRequest("filter needs at least one field. older_than_ms: 0 matches all jobs.")
    if not set(match.states or ()) <= set(LIVE):
        raise InvalidRequest(f"state must be one of {', '.join(LIVE)}. Jobs that have ended can't be cancelled.")
    return match


def parse(text: str) -> dict[str, str]:
    """The values of a filter by name. Raises InvalidRequest, which names the wrong part."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidRequest(f"A filter must have at most {MOST_CHARACTERS} characters.")
    found: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        word = _WORD.match(text, at)
        if word is None:
            raise InvalidRequest(f"A quote is not closed, or is not followed by a space: {_short(text[at:])}")
        name, value, at = word["name"], word["value"], word.end()
        known = f"{', '.join(WORDS)} and {DATA}path"
        if not word["colon"]:
            raise InvalidRequest(f"{_short(word.group())} is not name:value. The names are {known}.")
        if name not in WORDS and not name.startswith(DATA):
            raise InvalidRequest(f"A filter has no name {_short(name)}. The names are {known}.")
        if name in found:
            raise InvalidRequest(f"{_short(name)} is given twice. Give it once.")
        if not value:
            raise InvalidRequest(f'{_short(name)}: needs a value. "" is the empty value.')
        found[name] = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[0] == '"' else value
    return found


def text_of(values: Mapping[str, str]) -> str:
    """The text of a filter with these values, in the order of WORDS."""
    names = [*(name for name in WORDS if name in values), *(name for name in values if name.startswith(DATA))]
    return " ".join(f"{name}:{quote_value(values[name])}" for name in names)


def parameters(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The values as parameters of the API's list, and its `data` apart. Raises InvalidRequest."""
    given = {name: value for name, value in values.items() if name != "older" and not name.startswith(DATA)}
    if "older" in values:
        given["older_than_ms"] = str(milliseconds(values["older"]))
    data = [f"{name.removeprefix(DATA)}={value}" for name, value in values.items() if name.startswith(DATA)]
    return given, data


def words_of(match: JobMatch) -> str:
    names = ("priority", "tenant", "tag", "key", "group", "node", "error")
    values = {name: str(value) for name in names if (value := getattr(match, name)) is not None}
    if match.states is not None:
        values["state"] = match.states[0]  # a filter names at most one
    if match.older_than_ms is not None:
        values["older"] = f"{match.older_than_ms}ms"
    return text_of(values | {f"{DATA}{path_of(one.path)}": one.value for one in match.data})


def milliseconds(text: str) -> int:
    """A length of time, such as 500ms, 30s, 10m, 2h or 7d, in ms. Raises InvalidRequest."""
    length = parse_length(text)
    if length is None:
        raise InvalidRequest(f"{_short(text)} is not a length of time. Examples: 500ms, 30s, 10m, 2h, 7d.")
    return length


def completions(text: str, seen: Sequence[str] = ()) -> list[str]:
    """Filters to suggest: the typed one with one more word. `seen`: words from the jobs on the page."""
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


def quote_value(value: str) -> str:
    """A value as written in a filter, quoted if necessary."""
    if _PLAIN.match(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:60]}…"
