"""What reads bytes from outside, and what must hold of each whatever the bytes are: only errors that are declared get
out, and what was read or written is read again as the same.

A target takes any bytes. Three use it: the kept corpus and Hypothesis in ./test, and atheris in `make fuzz`.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.requests import Request

from app.base.keys import Key, Scope, digest_of, parse
from app.errors import HoldfastError, InvalidRequest, NotFound
from app.features.ingest import forms
from app.features.jobs import filters as job_filters
from app.features.jobs import job_parts
from app.features.jobs.filters import match_of
from app.features.logs.v0_watch import _last_event_id
from app.http import payloads
from app.http.body import Few, decode_json
from app.http.credentials import basic, bearer, from_another_site, names_this_machine, query_token, session_cookie
from app.http.fields import cursor_of, cursor_to, lease_of
from app.http.messages.ids import job_of
from app.http.signin.people import check_pattern
from app.http.signin.users import check_name as check_user
from app.http.sse import error_frame, one_line
from app.http.v0.records import AppendBody
from app.kernel.model import id_of
from app.kernel.topics.hints import Hints
from app.kernel.topics.policy import check_name
from app.kernel.topics.webhooks import check_url

Target = Callable[[bytes], None]


def _text(data: bytes) -> str:
    """As a header or path comes: each byte a character; or, of what is UTF-8, its characters."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _request(query: bytes = b"", *headers: tuple[bytes, bytes]) -> Request:
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": query, "headers": list(headers)})


def cursors(data: bytes) -> None:
    """A cursor in a query: refused, or a place; and a place is read from the cursor that was made of it."""
    for query in (b"cursor=" + data, b"cursor=" + base64.urlsafe_b64encode(data)):
        kinds: tuple[type[Mapping[str, object]], ...] = (dict[str, int], dict[str, str])
        for kind in kinds:
            try:
                place = cursor_of(_request(query), kind)
            except InvalidRequest:
                continue
            if place:
                again = _request(b"cursor=" + cursor_to(place).encode())
                assert cursor_of(again, kind) == place
    for text in (_text(data), base64.urlsafe_b64encode(data).decode()):
        try:
            seqs = _last_event_id(text)
        except InvalidRequest:
            continue
        assert all(isinstance(seq, int) for seq in seqs.values())


def lease_ids(data: bytes) -> None:
    """A lease id is no fence, a UUID, or refused; one that was made of a UUID is that."""
    text = _text(data)
    try:
        lease = lease_of(text)
    except InvalidRequest:
        lease = None
    if lease is not None:
        shown = f"lease_{lease.hex}"
        assert lease_of(shown) == lease
    if len(data) >= 16:
        made = f"lease_{data[:16].hex()}"
        read = lease_of(made)
        assert read is not None
        assert read.hex == data[:16].hex()


def message_ids(data: bytes) -> None:
    """A message's id names one job, and one job has one id."""
    text = _text(data)
    try:
        topic_id, seq = job_of(text)
    except NotFound:
        pass
    else:
        assert id_of(topic_id, seq) == text.lower()
    if len(data) >= 12:
        topic, job = int.from_bytes(data[:4]) & 0x7FFFFFFF, int.from_bytes(data[4:12]) & (1 << 63) - 1
        if topic and job:
            assert job_of(id_of(topic, job)) == (topic, job)


def names(data: bytes) -> None:
    """A topic's name, a prefix, a pattern of a grant, a user's name, a URL to be told: fine, or refused. A key covers a
    name by the beginning of it alone."""
    text = _text(data)
    for check in (check_name, check_pattern, check_user):
        try:
            check(text)
        except InvalidRequest:
            continue
        assert "\0" not in text
        assert "\n" not in text
    try:
        check_url(text, "url")
    except InvalidRequest:
        pass
    else:
        assert text.isascii()
        assert not re.search(r"[\s@#]", text.partition("/")[2].partition("/")[2].partition("/")[0])
    prefix, _, name = text.partition(" ")
    key = Key(digest_of(b"k"), Scope.ALL, (prefix,) if prefix else ())
    try:
        check_name(name)
    except InvalidRequest:
        return
    assert key.covers(name) is (not prefix or f"{name}$".startswith(prefix))


def key_lists(data: bytes) -> None:
    """HOLDFAST_API_KEYS: keys, or ValueError; never a list that was meant to be one and is none."""
    text = _text(data)
    try:
        keys = parse(text)
    except ValueError:
        return
    assert bool(keys) is bool(text)
    assert all(key.scopes for key in keys)


def bodies(data: bytes) -> None:
    """A body of records: as the plain decoder reads it, or refused."""
    try:
        body = decode_json(data, _few, "The body")
    except HoldfastError:
        return
    assert body == msgspec.json.decode(data, type=AppendBody)
    assert len(body.records) <= MOST


def json_gate(data: bytes) -> None:
    """What is let in as JSON is JSON that PostgreSQL and Python read too, without U+0000, not too deep."""
    if not payloads.is_json(data):
        return
    value = json.loads(data.decode(), parse_int=str)  # Python reads no number of many digits
    assert "\0" not in json.dumps(value, ensure_ascii=False)
    assert _depth(value) <= payloads.MAX_DEPTH
    assert payloads.of_base64(payloads.to_base64(data).decode()) == data


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def sse_frames(data: bytes) -> None:
    """Whatever a payload, tag or topic holds, a frame is one event with the fields that it was given."""
    text = _text(data)
    frames = [error_frame(InvalidRequest(text), topic=text)]
    if payloads.is_json(data):
        frames.append(b"id: 7\nevent: job\ndata: %b\n\n" % one_line(data))
    for frame in frames:
        assert frame.endswith(b"\n\n")
        lines = re.split(rb"\r\n|\r|\n", frame[:-2])
        assert b"" not in lines, "a frame ends once"
        assert [line.partition(b":")[0] for line in lines] in ([b"event", b"data"], [b"id", b"event", b"data"])
        assert json.loads(lines[-1].partition(b": ")[2]) is not json


def credentials(data: bytes) -> None:
    """Headers that say who somebody is: nothing, or what they say; and never an error."""
    for start in (b"", b"Basic ", b"Bearer "):
        header = start + data
        token, pair = bearer(header), basic(header)
        assert isinstance(token, bytes)
        assert pair is None or (len(pair) == 2 and ":" not in pair[0])
        assert not (token and pair)
    request = _request(b"token=" + data, (b"cookie", b"holdfast_session=" + data), (b"origin", data), (b"host", data))
    assert isinstance(query_token(request), bytes)
    assert isinstance(session_cookie(request), bytes)
    assert from_another_site(request) in {True, False}
    assert names_this_machine(data.decode("latin-1")) in {True, False}
    name, password = _text(data).partition(":")[0], _text(data)
    try:
        sent = base64.b64encode(f"{name}:{password}".encode())
    except UnicodeEncodeError:
        return
    assert basic(b"basic " + sent) == (name, password)


def filters(data: bytes) -> None:
    """The filter of the pages: refused with a reason, or what it says is written and read again."""
    text = _text(data)
    try:
        found = job_filters.parse(text)
    except InvalidRequest:
        return
    assert job_filters.parse(job_filters.text_of(found)) == found
    try:
        asked, wanted = job_filters.parameters(found)
        match = match_of(asked, wanted)
    except InvalidRequest:
        return
    assert match_of(*job_filters.parameters(job_filters.parse(job_filters.words_of(match)))) == match


def hints(data: bytes) -> None:
    """A word from another process: one of five, or passed over."""
    heard: list[object] = []
    one = Hints()
    one.topic_changed.subscribe(heard.append)
    one.user_changed.subscribe(heard.append)
    one.work_made.subscribe(lambda topic_id, jobs: heard.append(topic_id + jobs))
    one.receive(data)
    one.receive(data, relayed=True)


def form_bodies(data: bytes) -> None:
    """A form, by each type: refused, or JSON that is let in."""
    for header in (forms.FORM, f"{forms.MULTIPART}; boundary=b", "text/plain"):
        media = forms.media_type(header, (forms.FORM, forms.MULTIPART, "text/plain"))
        try:
            payload, kind = forms.payload_of(data, media)
        except HoldfastError:
            continue
        assert kind is not None or payloads.is_json(payload)


def pages(data: bytes) -> None:
    """What a page shows of a payload has an end, and is text."""
    for kind in (None, "text/plain", "application/octet-stream", "image/png"):
        job_parts.view_payload(data, kind)
        job_parts.text_to_edit(data, kind)


MOST: Final = 3
_few: Final = Few(AppendBody, "records", MOST)
TARGETS: Final[Mapping[str, Target]] = {
    one.__name__: one
    for one in (
        *(cursors, lease_ids, message_ids, names, key_lists, bodies, json_gate),
        *(sse_frames, credentials, filters, hints, form_bodies, pages),
    )
}


def seeds(target: str) -> list[bytes]:
    """The kept corpus of a target: a literal of bytes in each line of its file."""
    lines = (Path(__file__).parent / "corpus" / f"{target}.txt").read_text().splitlines()
    return [ast.literal_eval(line) for line in lines]
