"""The parts of a job's page: its timeline, its payload, and a command that enqueues a copy.

The timeline comes from app/kernel/ledger.py; docs/semantics.md, section 13. A payload is shown as JSON in lines that
fold, as text, or as bytes in hex. JSON is shown exactly as stored, token by token: numbers keep all their digits, and
duplicate fields stay. A payload that is not valid JSON is shown as text, and one that is not text in hex.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from app.http.context import context_of
from app.kernel.jobs import JobView
from app.kernel.ledger import Event, detail_for
from app.kernel.model import Batch, PayloadForm, as_json, form_of, is_utf8

# Events that end a delivery: the text and tone of the badge.
_ENDS: Final = {
    "acked": ("completed", "ok"),
    "released": ("returned", "watch"),
    "failed": ("failed", "bad"),
    "dead_lettered": ("became a dead letter", "bad"),
    "expired": ("expired", "watch"),
    "cancelled": ("cancelled", "watch"),
    "superseded": ("replaced by a newer job with its key", "watch"),
    "deleted": ("deleted", "watch"),
}
_WORDS: Final = {
    "enqueued": "Enqueued",
    "unblocked": "Unblocked: it is now first in its group",
    "updated": "Changed",
    "requeued": "Requeued",
    "extended": "Lease extended",
}
_UNTIL: Final = {"claimed": "until", "extended": "until", "released": "ready again from", "acked": "result kept until"}
LEASE_RAN_OUT: Final = "lease ran out"
BARS: Final = 60  # parts of the timeline's strip
MOST_LINES: Final = 2_000
MOST_CHARACTERS: Final = 64 * 1024  # of all lines, and of a text
MOST_BYTES: Final = 4 * 1024  # in hex
DEEPEST: Final = 128  # levels
MOST_EDITED: Final = 16 * 1024  # bytes; a form has 64 KiB, and encoding triples many characters
OPEN_LINES: Final = 200  # longer payloads have their inner fields folded at first
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
# Control characters are shown as their symbols.
_PICTURES: Final = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
MOST_COMMAND: Final = 96 * 1024  # bytes; Linux takes 128 KiB for an argument
_LIKE_BYTES: Final = re.compile(rb'\s*\{\s*"\$base64"')


class TimelineStep(msgspec.Struct):
    """A step of a job's timeline.

    `until_ms`: a time that the step set, in ms since 1970. `until`: its label.
    `error`: the error that the worker reported. `note`: other details.
    For a delivery: `delivery` is its number, `ms` how long the worker held the job (None while it runs, or if unknown),
    `ended` how it ended ("" while it runs), `extended` how often the lease was extended.
    """

    at_ms: int
    title: str
    delivery: int = 0
    node: str | None = None
    until: str = ""
    until_ms: int | None = None
    ms: int | None = None
    ended: str = ""
    tone: str = ""
    error: str | None = None
    note: str | None = None
    extended: int = 0


def timeline(events: Sequence[Event], now_ms: int, covered: Callable[[str], bool]) -> list[TimelineStep]:
    """A job's timeline, oldest step first. `covered`: whether a topic may be named."""
    steps: list[TimelineStep] = []
    delivery: TimelineStep | None = None
    for event in events:
        if delivery is not None and event.event == "extended":
            delivery.until_ms, delivery.extended = event.until_ms, delivery.extended + 1
            continue
        if event.event == "updated" and event.detail == "to be cancelled":
            steps.append(TimelineStep(event.at_ms, "Cancelled; its worker is told", node=event.node))
            continue
        ends = delivery is not None and event.event in _ENDS and not _is_late(delivery, event)
        if delivery is not None:
            _end(delivery, event) if ends else _run_out(delivery)
            delivery = None
        if event.event == "claimed":
            delivery = TimelineStep(
                event.at_ms, "Delivery", event.deliveries, event.node, _UNTIL["claimed"], event.until_ms
            )
            steps.append(delivery)
        elif not ends:
            steps.append(_other(event, covered))
    if delivery is not None and delivery.until_ms is not None and delivery.until_ms < now_ms:
        _run_out(delivery)
    return steps


def strip_of(steps: Sequence[TimelineStep], now_ms: int) -> list[tuple[str, int]]:
    """The times that the job waited ("ready") and was held ("in-flight"), in ms, in order.

    At most the latest BARS. Empty if the job was never claimed.
    """
    parts = list(_parts(steps, now_ms))[-BARS:]
    return parts if any(state == "in-flight" for state, _ in parts) else []


def _parts(steps: Sequence[TimelineStep], now_ms: int) -> Iterator[tuple[str, int]]:
    waits_from = steps[0].at_ms if steps else now_ms
    for step in steps:
        if step.delivery:
            yield "ready", max(step.at_ms - waits_from, 0)
            took = max(now_ms - step.at_ms if step.ms is None else step.ms, 1)
            yield "in-flight", took
            waits_from = step.at_ms + took
    if steps and steps[-1].ended in {_ENDS["released"][0], LEASE_RAN_OUT}:
        yield "ready", max(now_ms - waits_from, 0)


def _is_late(delivery: TimelineStep, event: Event) -> bool:
    """Whether the lease ran out before this event. That of a superseded job counts as run out."""
    return event.event == "superseded" or (delivery.until_ms is not None and event.at_ms > delivery.until_ms)


def _end(delivery: TimelineStep, event: Event) -> None:
    delivery.ended, delivery.tone = _ENDS[event.event]
    delivery.ms, delivery.error = event.at_ms - delivery.at_ms, event.detail
    delivery.until, delivery.until_ms = _UNTIL.get(event.event, ""), event.until_ms


def _run_out(delivery: TimelineStep) -> None:
    delivery.ended, delivery.tone = LEASE_RAN_OUT, "bad"
    delivery.ms = None if delivery.until_ms is None else delivery.until_ms - delivery.at_ms
    delivery.until_ms = None


def _other(event: Event, covered: Callable[[str], bool]) -> TimelineStep:
    word, tone = _ENDS.get(event.event, ("", ""))
    title = _WORDS.get(event.event) or f"{word[:1].upper()}{word[1:]}" or event.event
    detail = detail_for(event, covered)
    is_error = event.event in {"released", "failed", "dead_lettered"}
    return TimelineStep(
        event.at_ms,
        title,
        node=event.node,
        until=_UNTIL.get(event.event, "scheduled for"),
        until_ms=event.until_ms,
        tone=tone,
        error=detail if is_error else None,
        note=None if is_error else detail,
    )


class LineKind(Enum):
    VALUE = "value"
    OPENS = "opens"
    CLOSES = "closes"


_KINDS: Final = {"{": LineKind.OPENS, "[": LineKind.OPENS, "}": LineKind.CLOSES, "]": LineKind.CLOSES}
_STEPS: Final = {LineKind.OPENS: 1, LineKind.CLOSES: -1, LineKind.VALUE: 0}


class Line(msgspec.Struct, frozen=True):
    """A line of JSON: a value, or the begin or end of an object or array.

    `name`: the field's name as written. `comma`: whether a comma follows. `folded`: whether its inside starts hidden.
    """

    kind: LineKind
    text: str
    name: str = ""
    comma: bool = False
    folded: bool = False


class PayloadView(msgspec.Struct, frozen=True):
    """A payload for a page: `lines` of JSON, otherwise `text`, which may be its bytes in hex.

    `cut`: whether only a part is shown. `wrong`: whether the payload does not match its content type.
    """

    size: int
    title: str
    lines: list[Line] = msgspec.field(default_factory=list)
    text: str = ""
    is_hex: bool = False
    cut: bool = False
    wrong: bool = False


def view_payload(payload: bytes, content_type: str | None) -> PayloadView:
    """A payload for a page. `content_type` None means JSON."""
    form, title, size = form_of(content_type), content_type or "application/json", len(payload)
    if form is PayloadForm.BYTES or not is_utf8(payload):
        return PayloadView(
            size, title, text=_hex(payload), is_hex=True, cut=size > MOST_BYTES, wrong=form is not PayloadForm.BYTES
        )
    text = payload.decode()
    if form is PayloadForm.JSON and is_json(payload):
        lines, cut = _visible_lines(text)
        return PayloadView(size, title, lines, cut=cut)
    visible = text[:MOST_CHARACTERS].translate(_PICTURES)
    return PayloadView(size, title, text=visible, cut=len(text) > MOST_CHARACTERS, wrong=form is PayloadForm.JSON)


def text_to_edit(payload: bytes, content_type: str | None) -> str | None:
    """The payload as text that a form can send back unchanged, None if it can't."""
    if len(payload) > MOST_EDITED or form_of(content_type) is PayloadForm.BYTES or not is_utf8(payload):
        return None
    text = payload.decode()
    return text if text == text.translate(_PICTURES) else None


def is_json(payload: bytes) -> bool:
    try:
        _JSON.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def lines_of(text: str) -> Iterator[Line]:
    """Split JSON into lines. All tokens stay as written, in their order."""
    line, name = None, ""
    for match in _TOKEN.finditer(text):
        mark = match.group()
        if line is not None and mark == ",":
            line = replace(line, comma=True)
        elif line is not None and mark == ":":
            name, line = line.text, None
        elif line is not None and line.kind is LineKind.OPENS and line.text + mark in {"{}", "[]"}:
            line = replace(line, kind=LineKind.VALUE, text=line.text + mark)
        else:
            if line is not None:
                yield line
            line, name = Line(_KINDS.get(mark, LineKind.VALUE), mark, name), ""
    if line is not None:
        yield line


def _visible_lines(text: str) -> tuple[list[Line], bool]:
    found: list[Line] = []
    left, depth, cut = MOST_CHARACTERS, 0, False
    for line in lines_of(text):
        if len(found) == MOST_LINES or left <= 0 or depth > DEEPEST:
            cut = True
            break
        cut = len(line.text) > left
        found.append(replace(line, text=f"{line.text[:left]}…") if cut else line)
        left -= len(line.text) + len(line.name)
        depth += _STEPS[line.kind]
    if len(found) > OPEN_LINES:
        found = list(_fold(found))
    return found + [Line(LineKind.CLOSES, "…")] * depth, cut


def _fold(lines: list[Line]) -> Iterator[Line]:
    depth = 0
    for line in lines:
        depth += _STEPS[line.kind]
        yield replace(line, folded=True) if line.kind is LineKind.OPENS and depth > 1 else line


def _hex(payload: bytes) -> str:
    """A hex dump, sixteen bytes a line: the offset, the bytes, and the characters."""
    rows = []
    for start in range(0, min(len(payload), MOST_BYTES), 16):
        part = payload[start : min(start + 16, MOST_BYTES)]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        rows.append(f"{start:08x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(rows)


def batch_of(job: JobView) -> Batch:
    """A batch with a copy of the job, ready at once, with the topic's time to live and without the key.

    With the key, the copy would replace the job.
    """
    return Batch.of(
        [job.payload],
        tags=[job.tag],
        metadata=[job.metadata],
        tenants=[job.tenant],
        priorities=[job.priority],
        max_deliveries=[job.max_deliveries],
        content_types=[job.content_type],
        groups=[job.group],
    )


def record_of(job: JobView) -> bytes:
    options = {
        "tag": job.tag,
        "tenant": job.tenant or None,
        "priority": job.priority or None,
        "max_deliveries": job.max_deliveries,
        "content_type": job.content_type,
        "group": job.group,
    }
    data = as_json(job.payload, job.content_type)
    if form_of(job.content_type) is PayloadForm.JSON and _LIKE_BYTES.match(job.payload):
        # The API would decode this object as bytes. Sent as base64, it arrives unchanged.
        data = b'{"$base64":"%b"}' % base64.b64encode(job.payload)
        options["content_type"] = job.content_type or "application/json"
    given = msgspec.json.encode({name: value for name, value in options.items() if value is not None})[1:-1]
    meta = b"" if job.metadata is None else b',"meta":%b' % job.metadata.encode()
    return b'{"data":%b%b%b%b}' % (data, meta, b"," if given else b"", given)


def clone_command(base: str, topic: str, job: JobView, *, guarded: bool) -> str | None:
    """A bash command that enqueues a copy of the job. None if it is too long, or JSON or text is not UTF-8.

    `guarded`: whether the command sends the API key in HOLDFAST_API_KEY.
    """
    if len(job.payload) > MOST_COMMAND:
        return None
    try:
        body = (b'{"records":[%b]}' % record_of(job)).decode()
    except UnicodeDecodeError:
        return None  # not UTF-8
    text = post_command(base, topic, body, guarded=guarded)
    return text if len(text.encode()) <= MOST_COMMAND else None


def base_of(request: Request) -> str:
    """The address of the service as the browser sees it. The Referer or a trusted proxy tells whether it uses TLS."""
    host = request.url.netloc
    is_secure = request.headers.get("referer", "").startswith(f"https://{host}/")
    return f"{'https' if is_secure else context_of(request).access.scheme(request)}://{host}"


def post_command(base: str, topic: str, body: str, *, guarded: bool) -> str:
    """A command for bash that posts a body to a topic's path. `guarded`: it sends a key, from HOLDFAST_API_KEY."""
    key = """ -H "authorization: Bearer $HOLDFAST_API_KEY\"""" if guarded else ""
    lines = (f"curl {quote(f'{base}/v0/topics/{topic}')}{key}", "-H 'content-type: application/json'")
    return " \\\n  ".join((*lines, f"--data-raw {quote(body)}"))


def quote(text: str) -> str:
    """Quote a word for bash so that it is safe in a terminal: control characters are written as numbers."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_escape(letter) for letter in text) + "'"


def _escape(letter: str) -> str:
    if letter in "\\'":
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode())
