"""Commands that enqueue: a job once more, and the first job of a queue."""

from __future__ import annotations

import base64
import re
import shlex
from typing import Final

import msgspec
from starlette.requests import Request

from app.http.context import context_of
from app.kernel.forms import PayloadForm, as_json, form_of
from app.kernel.jobs import Shown
from app.kernel.model import Batch

MOST_COMMAND: Final = 96 * 1024  # characters; Linux takes 128 KiB an argument
FIRST: Final = (
    '{"config": {"type": "queue", "durable": true, "max_deliveries": 20, "dead_letter": "orders.dlq", '
    '"backoff": {"kind": "exponential", "base_ms": 1000, "cap_ms": 600000, "jitter": "full"}}, '
    '"records": [{"data": {"order": 1}}]}'
)
_LIKE_BYTES: Final = re.compile(rb'\s*\{\s*"\$base64"')


def batch_of(job: Shown) -> Batch:
    """The same payload with the same options, to be had at once. Not its key, by which it would be the job itself that
    is written; nor its time to live, which is the topic's then."""
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


def record_of(job: Shown) -> bytes:
    """The same as the API takes it."""
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
        # The API would take it for bytes; as bytes that are JSON it is what it was.
        data = b'{"$base64":"%b"}' % base64.b64encode(job.payload)
        options["content_type"] = job.content_type or "application/json"
    given = msgspec.json.encode({name: value for name, value in options.items() if value is not None})[1:-1]
    meta = b"" if job.metadata is None else b',"meta":%b' % job.metadata.encode()
    return b'{"data":%b%b%b%b}' % (data, meta, b"," if given else b"", given)


def command(base: str, topic: str, job: Shown, *, guarded: bool) -> str | None:
    """A command for bash that enqueues it once more; None where that is longer than one may be, or its payload is not
    what its type says. `guarded`: it takes a key, which is in HOLDFAST_API_KEY then."""
    if len(job.payload) > MOST_COMMAND:
        return None
    try:
        body = (b'{"records":[%b]}' % record_of(job)).decode()
    except UnicodeDecodeError:
        return None  # JSON that is none
    text = _post(base, topic, body, guarded=guarded)
    return text if len(text.encode()) <= MOST_COMMAND else None


def first(request: Request) -> str:
    """A command for bash that makes a queue, with its first job, at the address that the request came to."""
    return _post(base_of(request), "orders", FIRST, guarded=context_of(request).access.directory.guarded)


def base_of(request: Request) -> str:
    """The address of the service, as the browser has it. Where a proxy ends TLS, the page that led here tells, or the
    proxy, if it is trusted."""
    host = request.url.netloc
    is_secure = request.headers.get("referer", "").startswith(f"https://{host}/")
    return f"{'https' if is_secure else context_of(request).access.scheme(request)}://{host}"


def _post(base: str, topic: str, body: str, *, guarded: bool) -> str:
    key = """ -H "authorization: Bearer $HOLDFAST_API_KEY\"""" if guarded else ""
    lines = (f"curl {quoted(f'{base}/v0/topics/{topic}')}{key}", "-H 'content-type: application/json'")
    return " \\\n  ".join((*lines, f"--data-raw {quoted(body)}"))


def quoted(text: str) -> str:
    """One word for bash, which a terminal takes as it stands: what it would act upon is written as numbers."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_escaped(letter) for letter in text) + "'"


def _escaped(letter: str) -> str:
    if letter in "\\'":
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode())
