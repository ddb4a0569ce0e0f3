"""Checks payloads against an Avro schema, in Avro's binary encoding or its JSON encoding. docs/enqueue.md.

fastavro parses the schema. Payloads are checked here, because they can come from anyone: fastavro's readers follow them
to any depth and length, and say neither what does not fit nor where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

MOST_VALUES: Final = 1_100_000  # in one payload; more than it has bytes, as values without bytes take time but no room
MOST_DEPTH: Final = 128


class Misfit(Exception):
    """A value that does not fit. `path` leads to it from the outermost value, in reverse order."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault
        self.path: list[str | int] = []


class Node(Protocol):
    name: str  # its name in the value of a union

    def json(self, value: Any) -> None: ...
    def binary(self, data: Data) -> None: ...


class Avro:
    """A schema. Raises ValueError, which says what is wrong with the schema."""

    def __init__(self, schema: Any) -> None:
        try:
            named: dict[str, Any] = {}
            _must_have_fields(schema)
            parsed = parse_schema(schema, named, _write_hint=False)
        except UnknownType as error:
            raise ValueError(f"the type {error.name!r} is not defined") from None
        except SchemaParseException as error:
            raise ValueError(str(error)) from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{error}") from None
        self._root = _Builder(named).node(parsed)

    def json(self, value: Any) -> None:
        """Check a decoded payload in the JSON encoding. Raises Misfit."""
        self._root.json(value)

    def binary(self, payload: bytes) -> None:
        """Check a payload in the binary encoding: exactly one value. Raises Misfit."""
        data = Data(payload)
        self._root.binary(data)
        if data.at != len(payload):
            raise Misfit(f"bytes after the value: {len(payload) - data.at}")


class Data:
    """A payload that is read from its start."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.at = 0
        self._values = 0
        self._depth = 0

    def take(self, size: int) -> bytes:
        """The next bytes. Raises Misfit."""
        if size < 0 or self.at + size > len(self.payload):
            raise Misfit("the payload ends within a value")
        self.at += size
        return self.payload[self.at - size : self.at]

    def long(self) -> int:
        """A zig-zag integer of 64 bits."""
        found = 0
        for shift in range(0, 64, 7):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if byte >= 0x80 or found >> 64:
            raise Misfit("an integer has more than 64 bits")
        return (found >> 1) ^ -(found & 1)

    def text(self) -> str:
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise Misfit("a string is not UTF-8") from None

    def count(self) -> None:
        """Count one more value. Raises Misfit."""
        self._values += 1
        if self._values > MOST_VALUES:
            raise Misfit(f"the payload has more than {MOST_VALUES} values")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Enter a value with several parts. Raises Misfit."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise Misfit(f"it is nested more than {MOST_DEPTH} levels deep")
        yield
        self._depth -= 1

    def blocks(self, each: Callable[[], None]) -> None:
        """Read the items of an array or a map, which come in blocks."""
        while items := self.long():
            if items < 0:
                items = -items
                self.long()  # the bytes of the block, for readers that skip it
            for _ in range(items):
                self.count()
                each()


def _whole(bits: int) -> Callable[[Any], bool]:
    most = 2 ** (bits - 1)
    return lambda value: type(value) is int and -most <= value < most


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}


def _is_bytes(value: Any) -> bool:
    return type(value) is str and all(character <= "\xff" for character in value)


def _boolean(data: Data) -> None:
    if data.take(1)[0] > 1:
        raise Misfit("a boolean is neither 0 nor 1")


def _int(data: Data) -> None:
    if not -(2**31) <= data.long() < 2**31:
        raise Misfit("an int has more than 32 bits")


_Primitive = tuple[Callable[[Any], bool], Callable[[Data], object]]
_PRIMITIVES: Final[dict[str, _Primitive]] = {
    "null": (lambda value: value is None, lambda _data: None),
    "boolean": (lambda value: type(value) is bool, _boolean),
    "int": (_whole(32), _int),
    "long": (_whole(64), Data.long),
    "float": (_is_number, lambda data: data.take(4)),
    "double": (_is_number, lambda data: data.take(8)),
    "bytes": (_is_bytes, lambda data: data.take(data.long())),
    "string": (lambda value: type(value) is str, Data.text),
}


class _Scalar:
    def __init__(self, name: str) -> None:
        self.name = name
        self._fits, self._read = _PRIMITIVES[name]

    def json(self, value: Any) -> None:
        if not self._fits(value):
            raise Misfit(f"{_words_for(value)} is not of type {self.name}")

    def binary(self, data: Data) -> None:
        self._read(data)


class _FixedBytes:
    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self._size = size

    def json(self, value: Any) -> None:
        if not _is_bytes(value) or len(value) != self._size:
            raise Misfit(f"{_words_for(value)} is not the {self._size} bytes of {self.name}")

    def binary(self, data: Data) -> None:
        data.take(self._size)


class _Enum:
    def __init__(self, name: str, symbols: list[str]) -> None:
        self.name = name
        self._symbols = frozenset(symbols)

    def json(self, value: Any) -> None:
        if type(value) is not str or value not in self._symbols:
            raise Misfit(f"{_words_for(value)} is not a symbol of {self.name}")

    def binary(self, data: Data) -> None:
        if not 0 <= data.long() < len(self._symbols):
            raise Misfit(f"a number is not that of a symbol of {self.name}")


class _Array:
    name = "array"

    def __init__(self, items: Node) -> None:
        self._items = items

    def json(self, value: Any) -> None:
        if type(value) is not list:
            raise Misfit(f"{_words_for(value)} is not an array")
        for i, item in enumerate(value):
            with _at(i):
                self._items.json(item)

    def binary(self, data: Data) -> None:
        place = 0

        def item() -> None:
            nonlocal place
            with _at(place):
                self._items.binary(data)
            place += 1

        with data.deeper():
            data.blocks(item)


class _Map:
    name = "map"

    def __init__(self, values: Node) -> None:
        self._values = values

    def json(self, value: Any) -> None:
        if type(value) is not dict:
            raise Misfit(f"{_words_for(value)} is not a map")
        for key, item in value.items():
            with _at(key):
                self._values.json(item)

    def binary(self, data: Data) -> None:
        def item() -> None:
            key = data.text()
            with _at(key):
                self._values.binary(data)

        with data.deeper():
            data.blocks(item)


class _Record:
    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: dict[str, Node] = {}
        self.optional: set[str] = set()

    def json(self, value: Any) -> None:
        if type(value) is not dict:
            raise Misfit(f"{_words_for(value)} is not of type {self.name}")
        for key in value:
            if key not in self.fields:
                with _at(key):
                    raise Misfit(f"{self.name} has no such field")
        for name, node in self.fields.items():
            if name in value:
                with _at(name):
                    node.json(value[name])
            elif name not in self.optional:
                raise Misfit(f"the field {name!r} is missing")

    def binary(self, data: Data) -> None:
        with data.deeper():
            for name, node in self.fields.items():
                data.count()
                with _at(name):
                    node.binary(data)


class _Union:
    name = "union"

    def __init__(self, branches: list[Node]) -> None:
        self._branches = branches
        self._named = {branch.name: branch for branch in branches}

    def json(self, value: Any) -> None:
        if value is None and "null" in self._named:
            return
        if type(value) is dict and len(value) == 1:
            ((name, inner),) = value.items()
            if name in self._named and name != "null":
                with _at(name):
                    self._named[name].json(inner)
                return
        words = ["null" if name == "null" else f'{{"{name}": …}}' for name in self._named]
        raise Misfit(f"{_words_for(value)} is not one of {', '.join(words)[:200]}")

    def binary(self, data: Data) -> None:
        which = data.long()
        if not 0 <= which < len(self._branches):
            raise Misfit("a number is not that of a branch of the union")
        with data.deeper():
            self._branches[which].binary(data)


class _Builder:
    """Makes the nodes of a schema that fastavro has parsed, and checks what fastavro does not check."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._made: dict[str, Node] = {}

    def node(self, schema: Any) -> Node:
        if isinstance(schema, list):
            branches = [self.node(branch) for branch in schema]
            names = [branch.name for branch in branches]
            if len(set(names)) != len(names) or "union" in names:
                raise ValueError("a union has a type twice, or contains a union")
            return _Union(branches)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _PRIMITIVES:
            return _Scalar(kind)
        if kind == "array":
            return _Array(self.node(schema["items"]))
        if kind == "map":
            return _Map(self.node(schema["values"]))
        name = schema if isinstance(schema, str) else schema["name"] if kind in _NAMED else kind
        if name not in self._made:
            self._define(name, self._named[name])
        return self._made[name]

    def _define(self, name: str, schema: dict[str, Any]) -> None:
        if name in _PRIMITIVES:
            raise ValueError(f"{name!r} is the name of an Avro type")
        if schema["type"] == "fixed":
            if type(schema["size"]) is not int or schema["size"] < 0:
                raise ValueError(f"the size of {name!r} is not a number of bytes")
            self._made[name] = _FixedBytes(name, schema["size"])
        elif schema["type"] == "enum":
            if type(schema["symbols"]) is not list:
                raise ValueError(f"the symbols of {name!r} are not a list")
            self._made[name] = _Enum(name, schema["symbols"])
        else:
            self._made[name] = record = _Record(name)
            for field in schema["fields"]:
                if field["name"] in record.fields:
                    raise ValueError(f"{name!r} has the field {field['name']!r} twice")
                record.fields[field["name"]] = self.node(field["type"])
                if "default" in field:
                    record.optional.add(field["name"])


def _must_have_fields(schema: Any) -> None:
    """Raises ValueError for a record without `fields`. fastavro takes it for a record with an empty list of fields."""
    inner: Any = schema if isinstance(schema, list) else ()
    if isinstance(schema, dict):
        if schema.get("type") in ("record", "error") and "fields" not in schema:
            raise ValueError("a record has no fields")
        inner = schema.values()
    for part in inner:
        _must_have_fields(part)


_NAMED: Final = {"record", "error", "enum", "fixed"}


class _at:  # noqa: N801  (a step of the path; it costs little if nothing is wrong)
    __slots__ = ("_step",)

    def __init__(self, step: str | int) -> None:
        self._step = step

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Misfit):
            error.path.append(self._step)


def _words_for(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "null" if value is None else f"{value!r:.80}"
