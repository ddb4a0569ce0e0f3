"""The lines of tests/exchanges: what a client asks and is answered, the same in every run.

    METHOD path [header: value] body -> status [header: value] body

What differs between runs has a placeholder: an id its number among those of its area, so that it is the same wherever
it comes again; a time or a duration only a name. A header that is as usual is left out.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import Counter
from pathlib import Path

import httpx

from tests.settings import newer, without

FOLDER = Path(__file__).parents[1] / "exchanges"
WRITE = bool(os.environ.get("HOLDFAST_TEST_WRITE_EXCHANGES"))
KEY = "Bearer k"
JSON = "application/json"
USUAL = {"accept": "*/*", "content-type": JSON, "authorization": KEY}
# Others are the same in all answers, or differ by an answer's length and its time.
ANSWERED = ("content-type", "retry-after", "x-job-id", "location", "allow", "www-authenticate", "cache-control")

# Whose answers say how the machine is: of these only the form is kept.
LOOSE = re.compile(r"/metrics$|/horizon$|/overview$|/stats/history$|/reapers|-reaper/run$")
IDS = re.compile(
    r"(?P<lease>lease_[0-9a-f]{32})|(?P<key>key_[0-9a-f]{16})|(?P<secret>hf_[\w-]{43})|(?P<watch>wid_[\w-]{22})"
    r"|(?P<token>eyJ[\w-]+\.[\w-]+\.[\w-]+)|(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r'|(?<="next_cursor":")(?P<cursor>[^"]+)'
)
NOBODYS = {"key": "key_{:016x}", "watch": "wid_{:022x}", "id": "00000000-0000-0000-0000-{:012x}"}
TIMES = re.compile(r"(?<![\d.])(?:1[6-9]|2[0-2])\d{11}(?!\d)|20[234]\d-\d\d-\d\dT\d\d:\d\d:[\d.]+(?:Z|[+-]\d\d:\d\d)")
NUMBERS = re.compile(
    r'("(?:\w+_age_ms|age_ms|closes_in_ms|in_ms|server_total_ms|throttle_wait_ms|uptime_ms|per_second'
    r'|effective_priority|requeued|skipped)":|"wait_ms":(?!0\b))\d[\d.]*'
)
LENGTHS = re.compile(r"\b(for|about|in) \d[\d.]* (?:ms|s|min|a second)\b")


class Area:
    """The lines of one file, and the ids that their placeholders stand for in this run."""

    def __init__(self, name: str) -> None:
        self._file = FOLDER / f"{name}.txt"
        self.lines = self._file.read_text().splitlines()
        self._said: list[str] = []
        self._names: dict[str, str] = {}  # by id
        self._counts: Counter[str] = Counter()
        self._left_out = set() if WRITE else newer(*(file.read_text() for file in FOLDER.glob("*.txt")))

    def request(self, line: str) -> tuple[str, str, dict[str, str], bytes]:
        """Method, path, headers and body."""
        asked, _, answer = line.partition(" ->")
        for kind, number in re.findall(r"<(\w+) (\d+)>", asked):
            if int(number) > self._counts[kind]:  # of nothing that there is
                self._id_of(kind, NOBODYS[kind].format(int(number)))
        for one, name in self._names.items():
            asked = asked.replace(name, one)
        found = re.fullmatch(r"(\S+) (\S+)((?: \[[a-z-]+: [^\]]+\])*) ?(.*)", asked)
        assert found, line
        method, path, listed, body = found.groups()
        headers = {"authorization": KEY} | dict(re.findall(r"\[([a-z-]+): ([^\]]+)\]", listed))
        if body:
            headers.setdefault("content-type", JSON)
        # A text in quotes is a JSON string, unless it was sent as another type or refused as no JSON.
        if body.startswith('"') and (headers["content-type"] != JSON or re.match(r" 4(00|13|15)", answer)):
            body = json.loads(body)
        body = re.sub(r"<(\d+) times (.)>", lambda run: run[2] * int(run[1]), body)
        return method, path, headers, body.encode()

    def check(self, line: str, response: httpx.Response, content: bytes) -> None:
        """Compare an answer with its line, or keep it for `write`."""
        if any(f'"{name}"'.encode() in content for name in self._left_out):
            # Settings that were declared since need no new recording.
            content = json.dumps(without(self._left_out, json.loads(content)), ensure_ascii=False).encode()
        loose = LOOSE.search(response.request.url.path) and response.is_success
        headers = [
            f"[{name}: {response.headers[name]}]"
            for name in ANSWERED
            if name in response.headers and response.headers[name] != USUAL.get(name)
        ]
        answer = " ".join(filter(None, [str(response.status_code), *headers, (_form if loose else _body)(content)]))
        answer = NUMBERS.sub(r"\1<n>", LENGTHS.sub(r"\1 <n>", TIMES.sub("<time>", answer)))
        self._said.append(f"{line.partition(' ->')[0]} -> {IDS.sub(self._id, answer)}")
        if not WRITE:
            where = f"{self._file.name}:{len(self._said)}, which make exchanges writes anew:"
            assert line == self._said[-1], f"{where}\n{difference(line, self._said[-1])}"

    def write(self) -> None:
        if WRITE:
            self._file.write_text("\n".join([*self._said, ""]))

    def _id(self, found: re.Match[str]) -> str:
        return self._id_of(str(found.lastgroup), found[0])

    def _id_of(self, kind: str, text: str) -> str:
        if text not in self._names:
            self._counts[kind] += 1
            self._names[text] = f"<{kind} {self._counts[kind]}>"
        return self._names[text]


def difference(old: str, new: str) -> str:
    """Two lines, a field a line."""
    a, b = (re.sub(r'(?<=[,{\[])(?=["{])| (?=-> )', "\n", line).splitlines() for line in (old, new))
    return "\n".join(difflib.unified_diff(a, b, "recorded", "now", n=2, lineterm=""))


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
    return [] if isinstance(value, list) else 0
