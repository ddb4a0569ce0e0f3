"""The two protocols of SQS: JSON 1.0, where X-Amz-Target names the action, and the query protocol, a form or a query
with answers in XML. Both are read into the same fields, by the names of JSON, and written from the same answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.features.sqs.faults import SqsFault, invalid
from app.http.payloads import MAX_DEPTH

JSON_TYPE: Final = "application/x-amz-json-1.0"
TARGET: Final = "AmazonSQS."
_NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
MOST_FIELDS: Final = 20_000  # of a form

# Lists and maps of the query protocol: its name, then that of JSON.
_LISTS: Final = {
    "AttributeName": "AttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "TagKey": "TagKeys",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}
_MAPS: Final = {
    "Attribute": ("Attributes", "Name"),
    "Tag": ("Tags", "Key"),
    "MessageAttribute": ("MessageAttributes", "Name"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name"),
}
# The elements of lists and maps in XML, by their names in JSON.
_ELEMENTS: Final = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "Tags": ("Tag", "Key"),
}


class SqsRequest(msgspec.Struct, frozen=True):
    """A request's action and fields. `queue`: the queue in its path, if there is one."""

    action: str
    fields: dict[str, Any]
    json: bool
    queue: str | None = None


def is_json(request: Request) -> bool:
    """Whether a request speaks JSON, in which errors are answered then."""
    return "x-amz-target" in request.headers or request.headers.get("content-type", "").startswith(JSON_TYPE)


def read(request: Request, body: bytes) -> SqsRequest:
    """Raises SqsFault."""
    queue: str | None = request.path_params.get("queue")
    if is_json(request):
        target = request.headers.get("x-amz-target", "")
        if not target.startswith(TARGET):
            raise SqsFault("UnknownOperationException", f"{target[:80]!r} is no action of AmazonSQS.")
        try:
            fields = msgspec.json.decode(body or b"{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise SqsFault("SerializationException", f"The body is not a JSON object: {error}") from None
        return SqsRequest(target[len(TARGET) :], fields, json=True, queue=queue)
    text = request.url.query if request.method == "GET" else body.decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise invalid(f"The form can't be read: {error}") from None
    # A presigned request is a POST with its action in the query.
    if request.method == "POST" and not any(name == "Action" for name, _ in pairs):
        pairs += parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    tree = _tree(pairs)
    action = tree.pop("Action", None)
    if not isinstance(action, str):
        raise SqsFault("MissingAction", "The request must name an Action.")
    return SqsRequest(action, _fields(tree), json=False, queue=queue)


def _tree(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A.1.B=x as {"A": {"1": {"B": "x"}}}."""
    tree: dict[str, Any] = {}
    for name, value in pairs:
        *path, last = name.split(".")
        if len(path) > MAX_DEPTH:
            raise invalid(f"{name[:80]!r} is nested too deeply.")
        at = tree
        for step in path:
            at = at.setdefault(step, {})
            if not isinstance(at, dict):
                raise invalid(f"{name[:80]!r} is a value and has parts.")
        if isinstance(at.get(last), dict):
            raise invalid(f"{name[:80]!r} is a value and has parts.")
        at[last] = value
    return tree


def _in_order(numbered: Mapping[str, Any]) -> list[Any]:
    return [numbered[n] for n in sorted(numbered, key=lambda n: (not n.isdigit(), int(n) if n.isdigit() else 0))]


def _fields(tree: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in tree.items():
        if not isinstance(value, dict):
            fields[name] = value
        elif name in _LISTS:
            items = _in_order(value)
            fields[_LISTS[name]] = [_fields(one) if isinstance(one, dict) else one for one in items]
        elif name in _MAPS:
            field, key = _MAPS[name]
            items = _in_order(value)
            if not all(isinstance(one, dict) and isinstance(one.get(key), str) for one in items):
                raise invalid(f"Each {name} must have a {key}.")
            fields[field] = {one[key]: one.get("Value", "") for one in items}
        else:
            fields[name] = _fields(value)
    return fields


def answer(asked: SqsRequest, given: Mapping[str, Any], request_id: str) -> Response:
    """An action's answer, in the protocol in which it was asked."""
    if asked.json:
        return Response(msgspec.json.encode(given), media_type=JSON_TYPE, headers={"x-amzn-requestid": request_id})
    inner = _xml(given, f"{asked.action}ResultEntry")
    result = f"<{asked.action}Result>{inner}</{asked.action}Result>" if inner else ""
    text = (
        f'<?xml version="1.0"?><{asked.action}Response xmlns="{_NAMESPACE}">{result}'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{asked.action}Response>"
    )
    return Response(text, media_type="text/xml", headers={"x-amzn-requestid": request_id})


def refuse(fault: SqsFault, request_id: str, *, json: bool) -> Response:
    """An error, in the protocol of the request."""
    who = "Sender" if fault.sender else "Receiver"
    headers = {"x-amzn-requestid": request_id}
    if fault.status == 503:
        headers["retry-after"] = "1"
    if json:
        body = msgspec.json.encode({"__type": f"com.amazonaws.sqs#{fault.name}", "message": fault.message})
        headers["x-amzn-query-error"] = f"{fault.code};{who}"
        return Response(body, fault.status, headers, JSON_TYPE)
    text = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>{who}</Type>'
        f"<Code>{escape(fault.code)}</Code><Message>{escape(fault.message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return Response(text, fault.status, headers, "text/xml")


def _xml(given: Mapping[str, Any], entry: str) -> str:
    parts = []
    for name, value in given.items():
        element = entry if name == "Successful" else _ELEMENTS.get(name, name)
        if isinstance(value, list):
            parts += [_element(str(element), one, entry) for one in value]
        elif isinstance(value, Mapping) and isinstance(element, tuple):
            outer, key = element
            for inner, one in value.items():
                parts.append(f"<{outer}><{key}>{escape(inner)}</{key}>{_element('Value', one, entry)}</{outer}>")
        else:
            parts.append(_element(str(element), value, entry))
    return "".join(parts)


def _element(name: str, value: Any, entry: str) -> str:
    if isinstance(value, Mapping):
        return f"<{name}>{_xml(value, entry)}</{name}>"
    if isinstance(value, bool):
        value = str(value).lower()
    return f"<{name}>{escape(str(value))}</{name}>"
