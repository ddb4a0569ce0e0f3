"""Schemas that payloads of a topic must fit: JSON Schema, or Avro. docs/enqueue.md.

The libraries are loaded with the first schema, not at the start: most services have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from app.errors import InvalidSchema
from app.kernel.forms import PayloadForm, form_of

if TYPE_CHECKING:
    from app.kernel.schemas.avro import Avro

MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 64  # of a schema
PATTERN_BYTES: Final = 1024 * 1024  # that one pattern may take compiled
MOST_SHOWN: Final = 300  # characters of a fault
MOST_PATH: Final = 1_000
MOST_LOOKS: Final = 2_000_000  # at values of one payload, where alternatives multiply
# Beyond these what is wrong is not told: to find words for it takes thousands of times as long, and room.
MOST_EXPLAINED: Final = 2_000  # looks
MOST_COPIED: Final = 32 * 1024 * 1024  # looks times the payload's bytes

AVRO_BINARY: Final = frozenset({"avro/binary", "application/avro", "application/vnd.apache.avro"})
# Types that JSON Schema does not have, and those whose names both have and whose objects tell by their other fields.
_AVRO_TYPES: Final = frozenset({"record", "error", "enum", "fixed", "map", "int", "long", "float", "double", "bytes"})


class Format(Enum):
    """What a schema is written in."""

    JSON_SCHEMA = "json_schema"
    AVRO = "avro"


class SchemaText(NamedTuple):
    """A schema as it is kept: JSON."""

    format: Format
    schema: str


class Fault(NamedTuple):
    """Why a payload does not fit: a JSON Pointer (RFC 6901) to where, empty for the whole, and what is wrong there."""

    path: str
    text: str


class Schema(Protocol):
    """A schema that is ready."""

    def fault(self, payload: bytes, content_type: str | None) -> Fault | None:
        """What is wrong with a payload first; None: it fits. `content_type` None is JSON."""
        ...


def text_of(schema: str, form: Format | None = None) -> SchemaText:
    """What is to be kept of a schema that was given, in the format that was named or that its shape has. Raises
    InvalidSchema."""
    if len(schema) > MOST_BYTES or len(schema.encode()) > MOST_BYTES:
        raise InvalidSchema(f"A schema has {MOST_BYTES} bytes at most.")
    decoded = _decode(schema)
    text = SchemaText(_format_of(decoded) if form is None else form, schema)
    _make_ready(text.format, decoded)
    return text


def compile_schema(text: SchemaText) -> Schema:
    """A schema that is kept, made ready. Raises InvalidSchema, for one that another version of the service took."""
    return _make_ready(text.format, _decode(text.schema))


def first_fault(
    schema: Schema, payloads: Sequence[bytes], content_types: Sequence[str | None]
) -> tuple[int, Fault] | None:
    """The place of the first payload that does not fit, and why. `content_types` may end early: JSON."""
    for place, payload in enumerate(payloads):
        fault = schema.fault(payload, content_types[place] if place < len(content_types) else None)
        if fault is not None:
            return place, fault
    return None


def _decode(schema: str) -> Any:
    try:
        decoded = msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidSchema(f"The schema is not JSON: {error}.") from None
    except RecursionError:
        raise _too_deep() from None
    _check_depth(decoded)
    return decoded


def _check_depth(schema: Any) -> None:
    level, depth = [schema], 0
    while level:
        if depth > MOST_DEPTH:
            raise _too_deep()
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        depth += 1


def _too_deep() -> InvalidSchema:
    return InvalidSchema(f"The schema is nested too deeply; {MOST_DEPTH} levels are the most.")


def _format_of(schema: Any) -> Format:
    """Avro, where JSON Schema has no such thing: a list, a text, or an object whose type is one of Avro's alone."""
    return Format.AVRO if isinstance(schema, list) or _is_avro(schema) else Format.JSON_SCHEMA


def _is_avro(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return isinstance(schema, str)
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        return any(map(_is_avro, items)) if isinstance(items, list) else _is_avro(items)
    return isinstance(kind, str) and kind in _AVRO_TYPES


def _make_ready(form: Format, schema: Any) -> Schema:
    return _OfAvro(schema) if form is Format.AVRO else _OfJson(schema)


class _OfJson:
    def __init__(self, schema: Any) -> None:
        import jsonschema_rs  # noqa: PLC0415  (start time)

        from app.kernel.schemas import growth  # noqa: PLC0415

        self._Invalid = jsonschema_rs.ValidationError
        if not isinstance(schema, (dict, bool)):
            raise InvalidSchema("A JSON Schema is an object, true or false.")
        try:
            # Patterns in time linear in the text, whatever they are: none with lookaround or back references. And
            # nothing is fetched: a reference leads to somewhere in the schema itself.
            validator = jsonschema_rs.validator_for(
                schema,
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES),
            )
            self._fits, self._validate = validator.is_valid, validator.validate
            self._visits = growth.visits(schema)
        except self._Invalid as error:
            where = pointer(error.instance_path)
            raise InvalidSchema(f"The schema is no JSON Schema{_at(where)}: {_short(error.message)}") from None
        except ValueError as error:  # of references and of recursion
            raise InvalidSchema(f"The schema can't be used: {_short(str(error))}") from None

    def fault(self, payload: bytes, content_type: str | None) -> Fault | None:
        decoded = _json_of(payload, content_type)
        if isinstance(decoded, Fault):
            return decoded
        looks = 0 if self._visits is None else _looks(decoded, self._visits)
        if looks > MOST_LOOKS:
            return Fault("", "it is nested too deeply to be checked: the schema refers to itself in several ways")
        try:
            if looks <= MOST_EXPLAINED and looks * len(payload) <= MOST_COPIED:
                self._validate(decoded)
            elif not self._fits(decoded):
                return Fault("", "it does not fit, and is nested too deeply to be told where")
        except self._Invalid as error:
            return Fault(pointer(error.instance_path), _short(error.message))
        except ValueError as error:
            return Fault("", _short(f"it can't be checked: {error}"))
        return None


class _OfAvro:
    def __init__(self, schema: Any) -> None:
        from app.kernel.schemas.avro import Avro, Misfit  # noqa: PLC0415  (start time)

        self._Misfit = Misfit
        # fastavro marks what it has read already by fields of these names, and does not read it again.
        if isinstance(schema, dict) and any(name.startswith("__") for name in schema):
            raise InvalidSchema("The schema has fields whose names start with '__'.")
        try:
            self._avro: Avro = Avro(schema)
        except ValueError as error:
            raise InvalidSchema(f"The schema is no Avro schema: {_short(str(error))}") from None

    def fault(self, payload: bytes, content_type: str | None) -> Fault | None:
        try:
            if content_type is not None and content_type.partition(";")[0].strip().lower() in AVRO_BINARY:
                self._avro.binary(payload)
                return None
            decoded = _json_of(payload, content_type)
            if isinstance(decoded, Fault):
                return decoded
            self._avro.json(decoded)
        except self._Misfit as misfit:
            return Fault(pointer(misfit.path[::-1]), _short(misfit.fault))
        return None


def _looks(payload: Any, visits: Sequence[int]) -> int:
    """How often parts of a schema look at values of a payload, if they look at each as often as they can."""
    level, looks, depth = [payload], 0, 0
    while level and looks <= MOST_LOOKS:
        looks += len(level) * visits[min(depth, len(visits) - 1)]
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        depth += 1
    return looks


def _json_of(payload: bytes, content_type: str | None) -> Any:
    """The payload, decoded; a Fault where it is no JSON."""
    if form_of(content_type) is not PayloadForm.JSON:
        return Fault("", f"it is {_short(str(content_type))}, and the schema is for JSON")
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Fault("", _short(f"it can't be read: {error}"))


def pointer(path: Sequence[str | int]) -> str:
    """As a JSON Pointer (RFC 6901); one that is too long to show is cut."""
    text = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return text if len(text) <= MOST_PATH else text[: MOST_PATH - 1] + "…"


def _at(where: str) -> str:
    return f", at {where}" if where else ""


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"
