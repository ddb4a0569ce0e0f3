"""docs/routes.txt: what each route takes and answers, in one block each, so that a review sees what changes of it.

`make openapi` writes it anew, and a test compares them. It has all of the OpenAPI document but its words and examples.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from app.main import FEATURES, create_app
from app.settings import Settings

DOCS: Final = Path(__file__).parents[1] / "docs"
FILE: Final = DOCS / "routes.txt"
HEAD: Final = """\
Every route, and what it takes and answers. Made by `make openapi`, never by hand; a service has all of it, with words
and examples, at GET /openapi.json. A name with a ? may be left out. int 0..9: its bounds; str 1..9: its length;
[int] 1..9: how many.
"""
WORDS: Final = {"title", "description", "example", "examples"}
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_NAMES: Final = {"integer": "int", "string": "str", "boolean": "bool", "number": "float", "object": "object"}
_BOUNDS: Final = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))
_SIZES: Final = (*_BOUNDS, ("minProperties", "maxProperties"))

Schema = dict[str, Any]


@cache
def document() -> Schema:
    """The OpenAPI document, as a service with default settings answers it. Callers don't change it."""
    found: Schema = json.loads(json.dumps(create_app(Settings()).openapi()))
    return found


def scopes() -> dict[tuple[str, str], str]:
    """Which scopes each method and path needs, as its route declares them."""
    declared = {
        (route.method, route.path.replace(":path}", "}")): route.needs
        for feature in FEATURES
        for route in feature.routes
        if route.in_openapi
    }
    return declared | {("GET", "/openapi.json"): "none"}


def page() -> str:
    """What docs/routes.txt should be."""
    found, needs = document(), scopes()
    blocks = [
        "\n".join([f"{method.upper()} {path}  ({needs[method.upper(), path]})", *_operation(operation)])
        for path, item in found["paths"].items()
        for method, operation in item.items()
    ]
    structs = sorted(found["components"]["schemas"].items())
    return "\n\n".join([HEAD.strip(), *blocks, *("\n".join(_struct(name, schema)) for name, schema in structs)]) + "\n"


def _operation(operation: Schema) -> Iterator[str]:
    parameters = operation.get("parameters", [])
    for place in ("path", "query", "header"):
        named = [_field(one["name"], one["schema"], one["required"]) for one in parameters if one["in"] == place]
        yield from _wrapped(f"  {place} ", named)
    if body := operation.get("requestBody"):
        yield f"  body{'' if body['required'] else '?'} {_contents(body['content'])}"
    alike: dict[str, list[str]] = {}
    for status, answer in operation["responses"].items():
        headers = "".join(
            f", {name}" for name in sorted(set(answer.get("headers", {})) - {"X-Request-Id", "Retry-After"})
        )
        alike.setdefault(_contents(answer.get("content", {})) + headers, []).append(status)
    for answer, statuses in sorted(alike.items(), key=lambda item: item[1]):
        yield from textwrap.wrap(f"{' '.join(statuses)} {answer}", 118, initial_indent="  ", subsequent_indent="    ")


def _contents(content: Schema) -> str:
    kinds = {kind: _events(one) if kind == _EVENTS else _type(one.get("schema", {})) for kind, one in content.items()}
    return "; ".join(shown if kind == _JSON else f"{kind} {shown}" for kind, shown in kinds.items()) or "nothing"


def _events(content: Schema) -> str:
    """The kinds of a stream's events, and what their data is."""
    kinds = [one["properties"] for one in content["schema"].get("oneOf", [])]
    return ", ".join(f"{_plain(one['event']['const'])} {_type(one['data']['contentSchema'])}" for one in kinds) or "any"


def _struct(name: str, schema: Schema) -> Iterator[str]:
    fields = dict(schema)
    properties, required = fields.pop("properties", {}), fields.pop("required", [])
    kind = "" if properties and fields.pop("type") == "object" else f": {_type(fields)}"
    closed = " (no other fields)" if properties and fields.pop("additionalProperties", True) is False else ""
    rules = _rest(fields) if properties else ""
    yield from textwrap.wrap(f"{name}{kind}{closed}{rules}", 118, subsequent_indent="    ")
    yield from _wrapped("  ", [_field(field, one, field in required) for field, one in properties.items()])


def _field(name: str, schema: Schema, required: bool) -> str:
    default = f" = {_plain(schema['default'])}" if "default" in schema else ""
    return (
        f"{name}{'' if required else '?'}: {_type({key: schema[key] for key in schema if key != 'default'})}{default}"
    )


def _type(schema: Schema) -> str:
    """A schema in a few words; what has no short form is added as JSON."""
    left = {key: value for key, value in schema.items() if key not in WORDS}
    shown = _shape(left)
    for low, high in _SIZES:
        if left.keys() & {low, high}:
            shown += f" {left.pop(low, '')}..{left.pop(high, '')}"
    if form := left.pop("format", None):
        shown += f" {form}"
    if pattern := left.pop("pattern", None):
        shown += f" /{pattern}/"
    return shown + _rest(left)


def _shape(left: Schema) -> str:
    """What kind of value it is; takes out of `left` what that says."""
    kind = left.pop("type", None)
    if "$ref" in left:
        return str(left.pop("$ref")).rpartition("/")[2]
    if left.keys() & {"enum", "const"}:
        return " | ".join(map(_plain, left.pop("enum", None) or [left.pop("const")]))
    if "anyOf" in left:
        return " | ".join(map(_type, left.pop("anyOf")))
    if kind == "array" and "items" in left and "prefixItems" not in left:
        return f"[{_type(left.pop('items'))}]"
    if kind == "object" and isinstance(left.get("additionalProperties"), dict):
        return f"{{{_type(left.pop('propertyNames', {'type': 'string'}))}: {_type(left.pop('additionalProperties'))}}}"
    return "any" if kind is None else _NAMES.get(str(kind), str(kind))


def _rest(left: Schema) -> str:
    without = {key: value for key, value in left.items() if key not in WORDS}
    return f" {_plain(_without_words(without))}" if without else ""


def _without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_words(one) for key, one in value.items() if not (key in WORDS and isinstance(one, str))}
    return [_without_words(one) for one in value] if isinstance(value, list) else value


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _wrapped(start: str, fields: Iterable[str]) -> Iterator[str]:
    """Fields with commas between; a line ends behind a field, at 118 characters where it can."""
    line = ""
    for field in fields:
        if line and len(start) + len(line) + len(field) > 116:
            yield f"{start}{line},"
            start, line = " " * len(start), ""
        line += f", {field}" if line else field
    if line:
        yield start + line


if __name__ == "__main__":
    FILE.write_text(page())
