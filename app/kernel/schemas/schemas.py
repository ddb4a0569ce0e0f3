"""Schemas for the payloads of a topic: JSON Schema or Avro. docs/enqueue.md.

The libraries are loaded with the first schema and not at the start, because most services have no schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from app.errors import InvalidSchema
from app.kernel.model import PayloadForm, form_of

if TYPE_CHECKING:
    from app.kernel.schemas.avro import Avro

MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 64  # of a schema
PATTERN_BYTES: Final = 1024 * 1024  # most memory of one compiled pattern
MOST_SHOWN: Final = 300  # characters of a fault
MOST_PATH: Final = 1_000
MOST_LOOKS: Final = 2_000_000  # most checks of one payload, if alternatives multiply
# Above these, a fault has no explanation: finding one takes thousands of times as long, and as much memory.
MOST_EXPLAINED: Final = 2_000  # checks
MOST_COPIED: Final = 32 * 1024 * 1024  # checks times the payload's bytes

AVRO_BINARY: Final = frozenset({"avro/binary", "application/avro", "application/vnd.apache.avro"})
# The types that JSON Schema does not have. Objects of types that both have are recognized by their other fields.
_AVRO_TYPES: Final = frozenset({"record", "error", "enum", "fixed", "map", "int", "long", "float", "double", "bytes"})


class Format(Enum):
    """The language of a schema."""

    JSON_SCHEMA = "json_schema"
    AVRO = "avro"


class SchemaText(NamedTuple):
    """A schema as stored: JSON."""

    format: Format
    schema: str


class Fault(NamedTuple):
    """Why a payload does not fit. `path` is a JSON Pointer (RFC 6901), empty for the whole payload."""

    path: str
    text: str


class Schema(Protocol):
    def fault(self, payload: bytes, content_type: str | None) -> Fault | None:
        """The first fault of a payload; None: it fits. `content_type` None is JSON."""
        ...


def text_of(schema: str, form: Format | None = None) -> SchemaText:
    """The stored form of a schema, in the given format or the one recognized by its shape. Raises InvalidSchema."""
    if len(schema) > MOST_BYTES or len(schema.encode()) > MOST_BYTES:
        raise InvalidSchema(f"A schema can have at most {MOST_BYTES} bytes.")
    decoded = _decode(schema)
    text = SchemaText(_format_of(decoded) if form is None else form, schema)
    _make_ready(text.format, decoded)
    return text


def compile_schema(text: SchemaText) -> Schema:
    """Compile a stored schema. Raises InvalidSchema if it was stored by another version of the service."""
    return _make_ready(text.format, _decode(text.schema))


def first_fault(
    schema: Schema, payloads: Sequence[bytes], content_types: Sequence[str | None]
) -> tuple[int, Fault] | None:
    """The place and fault of the first payload that does not fit. `content_types` may be shorter: the rest is JSON."""
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
    return InvalidSchema(f"The schema is nested too deeply. The limit is {MOST_DEPTH} levels.")


def _format_of(schema: Any) -> Format:
    """Avro if it can't be JSON Schema: a list, a text, or an object whose type only Avro has."""
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
            raise InvalidSchema("A JSON Schema must be an object, true or false.")
        try:
            # Patterns must run in time linear in the text, so lookaround and back references are not supported. Nothing
            # is fetched: a reference must lead to a place in the schema itself.
            validator = jsonschema_rs.validator_for(
                schema,
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES),
            )
            self._fits, self._validate = validator.is_valid, validator.validate
            self._visits = growth.visits(schema)
        except self._Invalid as error:
            where = pointer(error.instance_path)
            raise InvalidSchema(f"The schema is not a valid JSON Schema{_at(where)}: {_short(error.message)}") from None
        except ValueError as error:  # for references and recursion
            raise InvalidSchema(f"The schema is not valid: {_short(str(error))}") from None

    def fault(self, payload: bytes, content_type: str | None) -> Fault | None:
        decoded = _json_of(payload, content_type)
        if isinstance(decoded, Fault):
            return decoded
        looks = 0 if self._visits is None else _looks(decoded, self._visits)
        if looks > MOST_LOOKS:
            return Fault("", "it is nested too deeply to check, as the schema refers to itself in several ways")
        try:
            if looks <= MOST_EXPLAINED and looks * len(payload) <= MOST_COPIED:
                self._validate(decoded)
            elif not self._fits(decoded):
                return Fault("", "it does not fit; it is nested too deeply to say where")
        except self._Invalid as error:
            return Fault(pointer(error.instance_path), _short(error.message))
        except ValueError as error:
            return Fault("", _short(f"it can't be checked: {error}"))
        return None


class _OfAvro:
    def __init__(self, schema: Any) -> None:
        from app.kernel.schemas.avro import Avro, Misfit  # noqa: PLC0415  (start time)

        self._Misfit = Misfit
        # fastavro marks schemas that it has parsed by fields with such names, and does not parse them again.
        if isinstance(schema, dict) and any(name.startswith("__") for name in schema):
            raise InvalidSchema("The schema has fields whose names start with '__'.")
        try:
            self._avro: Avro = Avro(schema)
        except ValueError as error:
            raise InvalidSchema(f"The schema is not a valid Avro schema: {_short(str(error))}") from None

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
    """How often parts of a schema can apply to values of a payload, at most."""
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
    """The decoded payload, or a Fault if it is not JSON."""
    if form_of(content_type) is not PayloadForm.JSON:
        return Fault("", f"it is {_short(str(content_type))}, and the schema is for JSON")
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Fault("", _short(f"it can't be read: {error}"))


def pointer(path: Sequence[str | int]) -> str:
    """A JSON Pointer (RFC 6901). If it is too long to show, it is cut."""
    text = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return text if len(text) <= MOST_PATH else text[: MOST_PATH - 1] + "…"


def _at(where: str) -> str:
    return f", at {where}" if where else ""


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"
