"""A page of the manual: its commands, run in a shell against a service, and the answers that it prints."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

AS_PRINTED = "http://127.0.0.1:8080"
MORE = "…"
# Fields whose values differ each time.
VARIABLE = {
    *("$ts", "deadline", "lease_id", "token", "last_write_ts", "deadlines", "uptime_ms", "version"),
    *("id", "secret", "at", "created_at", "created_by", "rotated_at", "expires_at", "revoked_at", "next_cursor"),
    *("visibility_timeout", "updated_at", "acked_at", "since", "from_time", "until_time", "first_seen", "last_seen"),
    *("user_id", "last_read_ts", "effective_priority"),
    *("until", "idle_ms", "closes_in_ms", "oldest_claimable_age_ms", "visible_at", "leased_at"),
    *("dlq_moved_at", "told_to", "completed_at", "started_at", "ended_at", "fire_at", "next_fire", "next_fires"),
}
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """A block of commands, and the answer to the last one if the page shows it."""

    line: int
    commands: str
    status: int | None
    answer: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """One `curl` of a page, and its answer."""

    method: str
    path: str
    query: str
    body: Any
    status: int
    out: str

    @property
    def answer(self) -> Any:
        """The answer, if it is JSON."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Ran:
    """A step with its calls."""

    step: Step
    calls: list[Call]


def steps(page: str) -> list[Step]:
    blocks = [(m.group(1), m.group(2), page.count("\n", 0, m.start()) + 1) for m in _FENCED.finditer(page)]
    found = []
    for i, (kind, text, line) in enumerate(blocks):
        if kind != "bash" or AS_PRINTED not in text:
            continue
        after = blocks[i + 1] if i + 1 < len(blocks) else ("", "", 0)
        head, _, rest = after[1].partition("\n")
        answered = after[0] == "" and re.fullmatch(r"\d{3}", head)
        found.append(Step(line, text, int(head) if answered else None, (rest if answered else None) or None))
    return found


# A stream's reader is curl itself, so that a page may kill it.
_CURL = """#!/bin/sh
printf '%s\\0' "$@" > "$NOTES/$$.asked"
case " $* " in *" -sN "*) exec CURL "$@" ;; esac
CURL -sS -D "$NOTES/$$.head" -o "$NOTES/$$.out" "$@"
code=$?
cat "$NOTES/$$.out"
exit $code
"""


class Shell:
    """A shell that keeps its variables from one step to the next, and whose curl notes what it did."""

    def __init__(self, folder: Path, url: str) -> None:
        self._url = url
        self._notes, tools = folder / "notes", folder / "bin"
        self._notes.mkdir()
        tools.mkdir()
        curl = shutil.which("curl")
        assert curl, "curl is not installed: apt install curl"
        (tools / "curl").write_text(_CURL.replace("CURL", curl))
        (tools / "curl").chmod(0o755)
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        package = str(Path(__file__).parents[1] / "sdk/src")
        env = {**os.environ, "PATH": path, "PYTHONPATH": package, "NOTES": str(self._notes)}
        pipe = subprocess.PIPE
        self._bash = subprocess.Popen(["bash"], stdin=pipe, stdout=pipe, text=True, env=env, cwd=folder)

    def run(self, step: Step) -> Ran:
        stdin, stdout = self._bash.stdin, self._bash.stdout
        assert stdin
        assert stdout
        stdin.write(step.commands.replace(AS_PRINTED, self._url) + "\nprintf '\\n\\036\\n'\n")
        stdin.flush()
        for text in iter(stdout.readline, "\x1e\n"):
            assert text, f"the shell ended at line {step.line}"
        asked = sorted(self._notes.glob("*.asked"), key=lambda path: path.stat().st_mtime_ns)
        calls = [_call(path) for path in asked if path.with_suffix(".head").exists()]
        for path in self._notes.iterdir():
            path.unlink()
        return Ran(step, calls)

    def close(self) -> None:
        self._bash.kill()
        self._bash.communicate()


def _call(asked: Path) -> Call:
    words = asked.read_text().split("\0")
    url = urlsplit(next(word for word in words if word.startswith("http://")))
    # What curl sends as a form, for want of a header, is no JSON.
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words and "-H" in words else None
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if "-d" in words else "GET"
    status = int(asked.with_suffix(".head").read_text().split(" ", 2)[1])
    return Call(method, url.path, url.query, body, status, asked.with_suffix(".out").read_text())


def printed(answer: str) -> Any:
    """Parse an answer of the page, with "…" for omitted parts."""
    return json.loads(re.sub(r"([{\[])…[}\]]", f'"{MORE}"', answer))


def differences(shown: Any, real: Any, where: str = "$", name: str = "") -> Iterator[str]:
    """The differences between an answer on the page and the real one."""
    if shown == MORE or (isinstance(shown, str) and isinstance(real, str) and shown.endswith(MORE)):
        return
    if isinstance(shown, dict) and isinstance(real, dict):
        # Pages leave out how long an answer took, and the links of errors.
        ours = {key: value for key, value in real.items() if key in shown or key not in {"performance", "docs"}}
        if shown.keys() != ours.keys():
            yield f"{where}: the page has {sorted(shown)}, the answer {sorted(ours)}"
        for key in shown.keys() & ours.keys():
            yield from differences(shown[key], ours[key], f"{where}.{key}", name if name in VARIABLE else key)
    elif isinstance(shown, list) and isinstance(real, list):
        if len(shown) != len(real):
            yield f"{where}: the page has {len(shown)}, the answer {len(real)}"
        for i, pair in enumerate(zip(shown, real, strict=False)):
            yield from differences(*pair, f"{where}[{i}]", name)
    elif type(shown) is not type(real) or (name not in VARIABLE and shown != real):
        yield f"{where}: the page has {shown!r}, the answer {real!r}"


def frames(text: str) -> list[tuple[str, Any]]:
    """A stream's frames: the fields before data, and the data."""
    found = []
    for frame in re.split(r"\n\n+", text.strip()):
        plain, _, data = frame.partition("data: ")
        found.append((plain, json.loads(data) if data else None))
    return found
