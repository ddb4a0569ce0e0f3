"""Which jobs are meant: by the parameters of the API's list, or by a filter in words, which says the same:
`state:ready tenant:acme key:"order 17" data.items.0.sku:a7 older:10m`. docs/admin.md.

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
DATA: Final = "data."  # how words begin that are about payloads; a path follows
MOST_CHARACTERS: Final = 1_000  # of a filter
_WORD: Final = re.compile(
    r'\s*(?P<name>(?:\\.|[^\s:="\\])*)(?P<colon>\s+=\s+|[:=]?)(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|\Z)', re.DOTALL
)
_PLAIN: Final = re.compile(r'[^\s"]+\Z')


def match_of(given: Mapping[str, str], data: Sequence[str] = ()) -> JobMatch:
    """The match for the parameters of the API's list that are given, and for `data`, what payloads must contain. Raises
    InvalidRequest."""
    state = given.get("state")
    if state is not None and state not in STATES:
        raise InvalidRequest(f"state must be one of {', '.join(STATES)}.")
    for name, most in _LONGEST.items():
        if len(given.get(name, "")) > most:
            raise InvalidRequest(f"{name} is longer than {most} characters.")
        if "\0" in given.get(name, ""):
            raise InvalidRequest(f"{name} can't have a NUL.")
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
    """What payloads must contain: each is `path=value`. A path is keys and list indexes with dots between; a backslash
    takes the next character as it is. Raises InvalidRequest."""
    if len(given) > MAX_DATA:
        raise InvalidRequest(f"data is there more than {MAX_DATA} times.")
    return tuple(map(_datum, given))


def _datum(given: str) -> Datum:
    said = _DATUM.match(given)
    path, value = (said["path"], said["value"]) if said else ("", "")
    keys: list[str] = []
    at = 0
    while at < len(path) and (key := _PATH_KEY.match(path, at)):
        keys.append(_ESCAPED.sub(r"\1", key[1]))
        at = key.end()
    if not keys or at < len(path):
        raise InvalidRequest(f"data is path=value, with keys of JSON and dots between as the path: {given[:80]!r}.")
    if len(path) > MAX_PATH or len(keys) > MAX_KEYS or len(value) > MAX_VALUE:
        raise InvalidRequest(
            f"data is too long: a path has {MAX_KEYS} keys and {MAX_PATH} characters, a value {MAX_VALUE}, at most."
        )
    if "\0" in given:
        raise InvalidRequest("data can't have a NUL.")
    return Datum(tuple(keys), value)


def path_of(keys: Sequence[str]) -> str:
    """These keys as a path in a filter."""
    return ".".join(_TO_ESCAPE.sub(lambda one: f"\\{one[0]}", key) for key in keys)


def must_be_live(match: JobMatch) -> JobMatch:
    """Check the filter of a cancel: it has at least one field, and does not ask for jobs that have ended. Raises
    InvalidRequest."""
    if match.is_all:
        raise InvalidRequest("filter needs at least one field; older_than_ms: 0 is all jobs.")
    if not set(match.states or ()) <= set(LIVE):
        raise InvalidRequest(f"state must be one of {', '.join(LIVE)}: what is over can't be cancelled.")
    return match


def parse(text: str) -> dict[str, str]:
    """The values of a filter's words. Raises InvalidRequest, which names the part that can't be understood."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidRequest(f"A filter has {MOST_CHARACTERS} characters at most.")
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
    """The filter with these values, in the order of WORDS."""
    names = [*(name for name in WORDS if name in values), *(name for name in values if name.startswith(DATA))]
    return " ".join(f"{name}:{quote_value(values[name])}" for name in names)


def parameters(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The values as the parameters of the API's list, and as its `data`. Raises InvalidRequest."""
    given = {name: value for name, value in values.items() if name != "older" and not name.startswith(DATA)}
    if "older" in values:
        given["older_than_ms"] = str(milliseconds(values["older"]))
    data = [f"{name.removeprefix(DATA)}={value}" for name, value in values.items() if name.startswith(DATA)]
    return given, data


def words_of(match: JobMatch) -> str:
    """The filter in words for a match."""
    names = ("priority", "tenant", "tag", "key", "group", "node", "error")
    values = {name: str(value) for name in names if (value := getattr(match, name)) is not None}
    if match.states is not None:
        values["state"] = match.states[0]  # there is one, where a filter names any
    if match.older_than_ms is not None:
        values["older"] = f"{match.older_than_ms}ms"
    return text_of(values | {f"{DATA}{path_of(one.path)}": one.value for one in match.data})


def milliseconds(text: str) -> int:
    """A length of time, such as 500ms, 30s, 10m, 2h or 7d, in ms. Raises InvalidRequest."""
    length = parse_length(text)
    if length is None:
        raise InvalidRequest(f"{_short(text)} is no length of time: 500ms, 30s, 10m, 2h and 7d are.")
    return length


def completions(text: str, seen: Sequence[str] = ()) -> list[str]:
    """Filters to suggest: the one typed, with one more word that it lacks. `seen`: words that fit the jobs on the page,
    complete or up to the value."""
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
    """A value as it is written in a filter, quoted if it must be."""
    if _PLAIN.match(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:60]}…"
