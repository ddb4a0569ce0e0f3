"""What a client asked and was answered, a line each, and the same lines in every run: kept in tests/exchanges.

What differs between runs has a placeholder: an id its number among those of its area, so that it is the same wherever
it comes again; a time or a duration only a name. A body is otherwise as it was sent.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import AsyncIterator
from itertools import zip_longest
from pathlib import Path

import httpx

from tests.settings import newer, without

FOLDER = Path(__file__).parents[1] / "exchanges"
WRITE = bool(os.environ.get("HOLDFAST_TEST_WRITE_EXCHANGES"))
ASKED = ("authorization", "content-type", "accept", "idempotency-key", "last-event-id")
USUAL = {"accept": "*/*", "content-type": "application/json"}
# Others of an answer are the same in all of them, or differ by its length and its time.
ANSWERED = ("content-type", "retry-after", "x-job-id", "location", "allow", "www-authenticate", "cache-control")

# Whose answers say how the machine is: of these only the form is kept.
LOOSE = re.compile(r"/metrics$|/horizon$|/overview$|/stats/history$|/reapers|-reaper/run$")
IDS = re.compile(
    r"(?P<lease>lease_[0-9a-f]{32})|(?P<key>key_[0-9a-f]{16})|(?P<secret>hf_[\w-]{43})|(?P<watch>wid_[\w-]{22})"
    r"|(?P<token>eyJ[\w-]+\.[\w-]+\.[\w-]+)|(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r'|(?<="next_cursor":")(?P<cursor>[^"]+)'
)
TIMES = re.compile(r"(?<![\d.])(?:1[6-9]|2[0-2])\d{11}(?!\d)|20[234]\d-\d\d-\d\dT\d\d:\d\d:[\d.]+(?:Z|[+-]\d\d:\d\d)")
NUMBERS = re.compile(
    r'("(?:\w+_age_ms|age_ms|closes_in_ms|in_ms|server_total_ms|throttle_wait_ms|uptime_ms|per_second'
    r'|effective_priority|requeued|skipped)":|"wait_ms":(?!0\b))\d[\d.]*'
)
LENGTHS = re.compile(r"\b(for|about|take) \d[\d.]* (?:ms|s|min|a second)\b")


class Placeholders:
    """What stands for that which is another in each run."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def put(self, text: str) -> str:
        text = NUMBERS.sub(r"\1<n>", LENGTHS.sub(r"\1 <n>", TIMES.sub("<time>", text)))
        return IDS.sub(self._id, text)

    def _id(self, found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        if found[0] not in self._ids:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._ids[found[0]] = f"<{kind} {self._counts[kind]}>"
        return self._ids[found[0]]


class _Kept(httpx.AsyncByteStream):
    """A stream, and what has been read of it."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream
        self.read = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self.read += piece
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class Recorder:
    """A client's hook that keeps its exchanges."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._kept: list[tuple[httpx.Response, _Kept | None]] = []

    async def __call__(self, response: httpx.Response) -> None:
        stream = None
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = stream = _Kept(response.stream)
        else:
            await response.aread()
        self._kept.append((response, stream))

    def check(self, area: str) -> None:
        """Compare what was kept since the last call with the area's file, or write it."""
        placeholders = Placeholders()
        left_out = set() if WRITE else newer(*(file.read_text() for file in FOLDER.glob("*.txt")))
        lines = [placeholders.put(self._line(*one, left_out)) for one in self._kept]
        self._kept.clear()
        file = FOLDER / f"{area}.txt"
        if WRITE:
            FOLDER.mkdir(exist_ok=True)
            file.write_text("\n".join([*lines, ""]))
            return
        known = file.read_text().splitlines() if file.exists() else []
        for number, (old, new) in enumerate(zip_longest(known, lines, fillvalue=""), 1):
            assert old == new, f"{file.name}:{number}, which make exchanges writes anew:\n{difference(old, new)}"

    def _line(self, response: httpx.Response, stream: _Kept | None, left_out: set[str]) -> str:
        request, path = response.request, response.request.url.raw_path.decode()
        asked = [f"{request.method} {path}", *self._headers(request.headers, ASKED), _body(request.content)]
        body = response.content if stream is None else stream.read.replace(b": hb\n\n", b"")
        body = _without(left_out, body)
        shown = _form(body) if LOOSE.search(request.url.path) and response.is_success else _body(body)
        answer = [str(response.status_code), *self._headers(response.headers, ANSWERED), shown]
        return f"{' '.join(filter(None, asked))} -> {' '.join(filter(None, answer))}"

    def _headers(self, headers: httpx.Headers, names: tuple[str, ...]) -> list[str]:
        usual = USUAL | {"authorization": self._key}
        return [f"[{name}: {headers[name]}]" for name in names if name in headers and headers[name] != usual.get(name)]


def difference(old: str, new: str) -> str:
    """Two lines, a field a line."""
    a, b = (re.sub(r'(?<=[,{\[])(?=["{])| (?=-> )', "\n", line).splitlines() for line in (old, new))
    return "\n".join(difflib.unified_diff(a, b, "recorded", "now", n=2, lineterm=""))


def _without(left_out: set[str], content: bytes) -> bytes:
    """A body without settings that were declared since: these alone need no new recording."""
    if any(f'"{name}"'.encode() in content for name in left_out):
        content = json.dumps(without(left_out, json.loads(content)), ensure_ascii=False).encode()
    return content


def _body(content: bytes) -> str:
    """JSON in few letters, else the text as a string; what only fills is counted."""
    text = re.sub(r"(.)\1{99,}", lambda run: f"<{len(run[0])} times {run[1]}>", content.decode())
    try:
        return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    except ValueError:
        return json.dumps(text, ensure_ascii=False) if text else ""


def _form(content: bytes) -> str:
    """The names of a body's fields, or of its metrics; what a list holds is left out."""
    if content.startswith(b"#"):
        return " ".join(sorted(line.split()[2] for line in content.decode().splitlines() if line.startswith("# TYPE")))
    return json.dumps(_names(json.loads(content)), separators=(",", ":"))


def _names(value: object) -> object:
    if isinstance(value, dict):
        # What holds old rows back is null where nothing does.
        return {name: 0 if name == "position" else _names(one) for name, one in value.items()}
    if isinstance(value, list):
        return []
    return 0
