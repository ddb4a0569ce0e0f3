"""POST /in/:topic, /in/:topic/:group and /in/:topic/:group/:dedupe: jobs from browsers and other services."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Key, Scope
from app.base.metrics import catalogue
from app.errors import Forbidden, InvalidRequest, NotAQueue, PayloadTooLarge, TopicNotFound
from app.features.ingest.forms import FORM, MULTIPART, media_type, payload_of
from app.http import options
from app.http.body import must_be_plain, read_bytes
from app.http.bounds import MAX_META_BYTES, MAX_RECORD_BYTES, NO_NUL
from app.http.context import Context
from app.http.credentials import authorization, basic, from_another_site
from app.http.fields import encode
from app.http.openapi import path
from app.http.payloads import JSON, TEXT, has_nul
from app.http.route import Call
from app.http.signin.people import UserKey
from app.http.spans import spans_of
from app.http.users import allow_origin, user_of_token, with_user
from app.kernel.enqueue.producer import Placement
from app.kernel.model import MAX_GROUP, MAX_JOB_KEY, Batch, id_of
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import NAME, TopicType

MAX_PARAMS: Final = 64


class IngestAnswer(msgspec.Struct):
    """The job. id: its id in the messages dialect, also in X-Job-Id. duplicate: true if nothing was enqueued because
    this earlier job has the same dedupe id."""

    id: str
    topic: str
    seq: int
    duplicate: bool


def _part(name: str, what: str, most: int) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": most, "pattern": NO_NUL.replace("\\u0000", "/\\u0000")}
    return path(name, what, schema)


GROUP: Final = _part("group", "The job's group.", MAX_GROUP)
DEDUPE: Final = _part("dedupe", "The job's dedupe_id.", MAX_JOB_KEY)
_FORM: Final = {"schema": {"type": "object"}, "example": {"name": "Ada Lovelace", "list": ["news", "jobs"]}}
DESCRIBED: Final = {
    "requestBody": {
        "required": True,
        "description": f"At most {MAX_RECORD_BYTES} bytes, of a type that the topic accepts.",
        "content": {JSON: {"schema": {}}, FORM: _FORM, MULTIPART: _FORM, TEXT: {"schema": {"type": "string"}}},
    },
    "responses": {
        "202": {
            "description": "The job is enqueued.",
            "headers": {
                "X-Job-Id": {
                    "description": "The job's id.",
                    "required": True,
                    "schema": {"type": "string", "format": "uuid"},
                }
            },
        },
        "415": {"description": "The topic does not accept this type, or the charset is not UTF-8."},
    },
}


async def ingest(call: Call) -> Response:
    """Enqueue the body into an existing queue: JSON, a form, text, or another type that the topic accepts."""
    request, context = call.request, call.context
    name = request.path_params["topic"]
    policy, key, user_id = await _check_access(request, context, name)
    media = media_type(request.headers.get("content-type", ""), policy.config.accepts)
    batch = Batch.of(
        [b""],  # filled in later: errors in the other fields are reported before the body is read
        metadata=[_metadata(request, user_id)],
        groups=[_in_path(request, "group", MAX_GROUP)],
        dedupe_ids=[_in_path(request, "dedupe", MAX_JOB_KEY)],
    )
    options.admit_jobs(key, name, batch)
    must_be_plain(request)
    body = await read_bytes(request, min(MAX_RECORD_BYTES, context.settings.max_body_bytes))
    payload, content_type = payload_of(body, media)
    size = len(payload) + sum(len(text.encode()) for text in batch.metadata if text)
    if size > MAX_RECORD_BYTES:
        raise PayloadTooLarge(
            f"Payload and metadata have {size} bytes. The limit is {MAX_RECORD_BYTES}.", {"max_bytes": MAX_RECORD_BYTES}
        )
    batch.payloads = [payload]
    batch.content_types = [content_type]
    size += spans_of(request).begin_send(name, batch)

    async def check_again(name: str) -> Policy:
        return (await _check_access(request, context, name))[0]  # the topic may have been recreated and not be public

    policy, found = await context.engine.enqueues.place_as_found(policy, batch, size, None, check_again)
    context.engine.metrics.counter(catalogue.INGESTED, media.kind).add()
    seqs, duplicate = (found.seqs, found.duplicate) if isinstance(found, Placement) else (found, [])
    spans_of(request).set_seqs(seqs)
    answer = IngestAnswer(id_of(policy.topic.id, seqs[0]), name, seqs[0], any(duplicate))
    headers = {"x-job-id": answer.id}
    if policy.config.ingest == "public":
        headers |= allow_origin(request, exposed="X-Job-Id")
    return Response(encode(answer), 202, headers, "application/json")


async def _check_access(request: Request, context: Context, name: str) -> tuple[Policy, Key | None, str | None]:
    """The topic's policy, the sender's key, and the id of the user that the job is for.

    Raises Unauthorized and Forbidden, and only after these checks TopicNotFound and NotAQueue, so that callers without
    permission don't learn which topics exist.
    """
    access = context.access
    if b"%2f" in request.scope.get("raw_path", b"").lower():
        raise InvalidRequest("A topic, group or dedupe id in a path can't contain '/'.")
    policy = await context.policies.get_before_auth(name) if NAME.match(name) else None
    key, user_id = None, await user_of_token(request, context)
    if policy is None or policy.config.ingest != "public":
        if user_id is not None and access.directory.guarded:
            raise Forbidden(
                "A token of POST /v0/users/<id>/token may send only to topics with ingest: public.", {"topic": name}
            )
        key = access.check(request, Scope.WRITE, name, confines=True)
    elif user_id is None and _has_credentials(request):
        key = access.check(request, Scope(0), confines=True)
    if policy is None:
        raise TopicNotFound(name)
    if policy.config.type is not TopicType.QUEUE:
        raise NotAQueue(name)
    return policy, key, key.id if isinstance(key, UserKey) else user_id


def _has_credentials(request: Request) -> bool:
    """Whether the request has credentials. A browser's stored password from another site's page doesn't count."""
    header = authorization(request)
    return bool(header) and not (basic(header) and from_another_site(request))


def _metadata(request: Request, user_id: str | None) -> str | None:
    """The parameters of the query and the path as `params`, and the user's id. None without either.

    Leaves out `token`: other routes take a key or token there, so it is a credential.
    """
    params: dict[str, Any] = {}
    given = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    if len(given) > MAX_PARAMS:
        raise InvalidRequest(f"A request must have at most {MAX_PARAMS} parameters.")
    for name, value in given:
        before = params.get(name)
        params[name] = value if before is None else [*before, value] if isinstance(before, list) else [before, value]
    params |= {name: request.path_params[name] for name in ("group", "dedupe") if name in request.path_params}
    text = encode({"params": params}).decode() if params else None
    if user_id is not None:
        text = with_user(text, user_id)
    if text is not None and len(text.encode()) > MAX_META_BYTES:
        raise InvalidRequest(
            f"The parameters are too long: the metadata made of them must have at most {MAX_META_BYTES} bytes."
        )
    if text is not None and has_nul(text.encode()):
        raise InvalidRequest("A parameter has a NUL character (U+0000), which can't be stored.")
    return text


def _in_path(request: Request, name: str, most: int) -> str | None:
    value: str | None = request.path_params.get(name)
    if value is not None and (len(value) > most or "\0" in value):
        raise InvalidRequest(f"A {name} must have 1 to {most} characters and no NUL.")
    return value
