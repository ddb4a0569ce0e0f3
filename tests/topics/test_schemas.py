"""Schemas by themselves: what is one, which payloads fit, and where one does not."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from app.errors import InvalidSchema
from app.kernel.schemas import avro, schemas
from app.kernel.schemas.schemas import Format, Schema, compile_schema, text_of

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
KIND = {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}
OPTIONAL = {
    "note": ["null", "string"],
    "next": ["null", "Order", {"type": "array", "items": "Kind"}],
}
TYPES = {
    "id": "long",
    "size": "int",
    "price": "double",
    "paid": "boolean",
    "kind": KIND,
    "mark": {"type": "fixed", "name": "Mark", "size": 2},
    "raw": "bytes",
    "items": {"type": "array", "items": ITEM},
    "tags": {"type": "map", "values": "int"},
}
FIELDS: list[dict[str, Any]] = [{"name": name, "type": type_} for name, type_ in TYPES.items()]
FIELDS += [{"name": name, "type": type_, "default": None} for name, type_ in OPTIONAL.items()]
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}
FITS: dict[str, Any] = {"id": 2**62, "size": -(2**31), "price": 1, "paid": True, "note": {"string": "n"}}
FITS |= {"kind": "OLD", "mark": "\u00ffa", "raw": "\u0000\u00ff", "items": [{"sku": "s"}, {"sku": ""}]}
FITS |= {"tags": {"a/b": 1}, "next": None}
JSON_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "a/b~c": {"type": "array", "items": {"$ref": "#/$defs/item"}},
    },
    "required": ["id"],
    "additionalProperties": False,
    "$defs": {"item": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}


def schema_of(schema: Any, form: str | None = None) -> Schema:
    return compile_schema(text_of(json.dumps(schema), None if form is None else Format(form)))


def fault_of(schema: Schema, value: Any) -> tuple[str, str] | None:
    return schema.fault(json.dumps(value).encode(), None)


@pytest.mark.parametrize(
    ("value", "path", "word"),
    [
        ({"id": 1}, None, ""),
        ({"id": 1, "code": "abc", "a/b~c": [{"sku": "s"}]}, None, ""),
        ({}, "", '"id"'),
        ([], "", "object"),
        ({"id": 0}, "/id", "minimum"),
        ({"id": 1, "code": "A"}, "/code", '"A"'),
        ({"id": 1, "a/b~c": [{}, {"sku": 5}]}, "/a~1b~0c/1/sku", "string"),
        ({"id": 1, "other": 1}, "", "other"),
    ],
)
def test_a_json_schema_says_what_is_wrong_and_where(value: Any, path: str | None, word: str) -> None:
    fault = fault_of(schema_of(JSON_ORDER), value)
    assert (None if fault is None else fault[0]) == path
    assert fault is None or word in fault[1]


@pytest.mark.parametrize(
    ("change", "path", "word"),
    [
        ({}, None, ""),
        ({"note": None}, None, ""),
        ({"price": 1.5, "next": {"array": ["NEW"]}}, None, ""),
        ({"next": {"shop.Order": FITS}}, None, ""),
        ({"id": "1"}, "/id", "long"),
        ({"id": 2**63}, "/id", "long"),
        ({"id": True}, "/id", "long"),
        ({"size": 2**31}, "/size", "int"),
        ({"size": 1.0}, "/size", "int"),
        ({"price": "x"}, "/price", "double"),
        ({"paid": 1}, "/paid", "boolean"),
        ({"note": "n"}, "/note", '{"string": …}'),
        ({"note": {"string": 1}}, "/note/string", "string"),
        ({"kind": "NONE"}, "/kind", "shop.Kind"),
        ({"mark": "abc"}, "/mark", "2 bytes"),
        ({"raw": "\u0100"}, "/raw", "bytes"),
        ({"items": {}}, "/items", "array"),
        ({"items": [{"sku": "s"}, {"sku": 5}]}, "/items/1/sku", "5 is not of type string"),
        ({"items": [{}]}, "/items/0", "'sku' is missing"),
        ({"tags": {"a/b": "1"}}, "/tags/a~1b", "int"),
        ({"next": {"Order": FITS}}, "/next", "shop.Order"),
        ({"next": {"shop.Order": FITS | {"id": None}}}, "/next/shop.Order/id", "null"),
        ({"other": 1}, "/other", "no such field"),
    ],
)
def test_an_avro_schema_says_what_is_wrong_and_where(change: Any, path: str | None, word: str) -> None:
    fault = fault_of(schema_of(ORDER), FITS | change)
    assert (None if fault is None else fault[0]) == path
    assert fault is None or word in fault[1]


def test_a_field_may_be_absent_if_it_has_a_default() -> None:
    order = schema_of(ORDER)
    assert fault_of(order, {name: value for name, value in FITS.items() if name != "note"}) is None
    assert fault_of(order, {name: value for name, value in FITS.items() if name != "id"}) == (
        "",
        "the field 'id' is missing",
    )


def in_binary(schema: Any, value: Any) -> bytes:
    """As another's library writes it."""
    import io

    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


BINARY = FITS | {"note": "n", "mark": b"ab", "raw": b"\0\xff", "next": ["NEW", "OLD"]}


@pytest.mark.parametrize("kind", ["avro/binary", "application/avro", "Application/Avro; x=1"])
def test_avro_in_binary_fits_too(kind: str) -> None:
    order = schema_of(ORDER)
    deep = in_binary(ORDER, BINARY | {"next": BINARY | {"next": None}})
    for payload in (in_binary(ORDER, BINARY), deep):
        assert order.fault(payload, kind) is None
        assert order.fault(payload, "application/octet-stream") is not None
    assert order.fault(json.dumps(FITS).encode(), kind) is not None


def test_no_part_of_a_binary_payload_fits() -> None:
    order, payload = schema_of(ORDER), in_binary(ORDER, BINARY)
    for size in range(len(payload)):
        assert order.fault(payload[:size], "avro/binary") is not None, size
    fault = order.fault(payload + b"\0", "avro/binary")
    assert fault == ("", "bytes after the value: 1")


@pytest.mark.parametrize(
    ("schema", "payload", "path"),
    [
        ("boolean", b"\x02", ""),
        ("int", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", ""),
        ("long", b"\xff" * 11, ""),
        ("long", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", ""),
        ("string", b"\x02\xff", ""),
        ("bytes", b"\x01", ""),
        (["null", "int"], b"\x04\x00", ""),
        ({"type": "map", "values": "boolean"}, b"\x02\x02k\x05\x00", "/k"),
        ({"type": "array", "items": "boolean"}, b"\x03\x04\x00\x05\x00", "/1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", ""),
    ],
)
def test_binary_that_does_not_fit_is_told_where(schema: Any, payload: bytes, path: str) -> None:
    fault = schema_of(schema).fault(payload, "avro/binary")
    assert fault is not None
    assert fault.path == path


def test_binary_that_says_it_goes_on_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MOST_VALUES", 50_000)
    for items in ("null", {"type": "record", "name": "R", "fields": []}):
        many = schema_of({"type": "array", "items": items})
        fault = many.fault(b"\x80\x80\x80\x80\x80\x40\x00", "avro/binary")
        assert fault is not None
        assert "more than 50000 values" in fault.text
    chain = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
    fault = schema_of(chain).fault(b"\x02" * 100_000 + b"\0", "avro/binary")
    assert fault is not None
    assert "128 levels" in fault.text
    endless = {"type": "record", "name": "R", "fields": [{"name": "next", "type": "R"}]}
    assert schema_of(endless).fault(b"", "avro/binary") is not None


OF_JSON: list[Any] = [
    *(True, {}, {"type": "object"}, {"type": ["string", "null"]}),
    {"type": "array", "items": {"type": "string"}},
    {"$schema": DRAFT_7, "type": "array", "items": [{"type": "string"}]},
]
OF_AVRO: list[Any] = [
    *("string", ["null", "string"], {"type": "long"}, {"type": "map", "values": "string"}, ORDER),
    {"type": "array", "items": "string"},
    {"type": "array", "items": ["null", {"type": "string"}]},
    {"type": "array", "items": {"type": "map", "values": "string"}},
]


def test_the_shape_says_what_a_schema_is() -> None:
    assert [text_of(json.dumps(one)).format for one in OF_JSON] == [Format.JSON_SCHEMA] * len(OF_JSON)
    assert [text_of(json.dumps(one)).format for one in OF_AVRO] == [Format.AVRO] * len(OF_AVRO)


def test_what_it_is_can_be_said() -> None:
    assert text_of('{"type":"string"}', Format.AVRO).format is Format.AVRO
    with pytest.raises(InvalidSchema, match="not a valid JSON Schema"):
        text_of('{"type":"long"}', Format.JSON_SCHEMA)
    with pytest.raises(InvalidSchema, match="not a valid Avro schema"):
        text_of('{"type":"object"}', Format.AVRO)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("5", "object, true or false"),
        ('{"type":"nope"}', "/type"),
        ('{"properties":{"a":{"minimum":"x"}}}', "/properties/a/minimum"),
        ('{"pattern":"("}', "/pattern"),
        ('{"pattern":"(?=a)b"}', "/pattern"),
        ('{"pattern":"(a)\\\\1"}', "/pattern"),
        ('{"pattern":"((a{100}){100}){100}"}', "/pattern"),
        ('{"$ref":"#/$defs/none"}', "none"),
        ('{"$schema":"http://127.0.0.1:1/x"}', "meta-schema"),
        ("[" * 100 + "]" * 100, "nested too deeply"),
        ('{"not":' * 5_000 + "{}" + "}" * 5_000, "nested too deeply"),
        ('"Nope"', "Nope"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"b.C"}]}', "b.C"),
        ('{"type":"record","fields":[]}', "name"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "the field 'a' twice",
        ),
        ('{"type":"record","name":"R","fields":{"a":1}}', "field"),
        ('{"type":"record","name":"R"}', "fields"),
        ('{"type":"record","name":"int","fields":[]}', "int"),
        ('{"type":"enum","name":"E"}', "symbols"),
        ('{"type":"enum","name":"E","symbols":"ab"}', "list"),
        ('{"type":"enum","name":"E","symbols":["1"]}', "symbol"),
        ('{"type":"enum","name":"E","symbols":[["a"]]}', ""),
        ('{"type":"fixed","name":"F","size":-1}', "size"),
        ('{"type":"fixed","name":"F"}', "size"),
        ('["int","int"]', "twice"),
        ('[["int"],"int"]', "union"),
        ('{"type":"map"}', "values"),
        ('{"type":"array","items":"int","__fastavro_parsed":true,"__named_schemas":{}}', "__"),
        ("[5]", ""),
        ("[null]", ""),
        ('[{"type":["int"]}]', ""),
    ],
)
def test_what_is_no_schema_is_refused_with_what_is_wrong(schema: str, word: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        text_of(schema)
    assert word in refused.value.message
    assert len(refused.value.message) < 1_000


def test_its_size_is_bounded() -> None:
    def of(size: int) -> str:
        text = '{"description":"%s"}'
        return text % ("x" * (size - len(text) + 2))

    assert len(of(schemas.MOST_BYTES)) == schemas.MOST_BYTES
    assert text_of(of(schemas.MOST_BYTES)).format is Format.JSON_SCHEMA
    for too_large in (of(schemas.MOST_BYTES + 1), '{"description":"' + "é" * (schemas.MOST_BYTES // 2) + '"}'):
        with pytest.raises(InvalidSchema, match="262144"):
            text_of(too_large)


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$schema", "$id and $ref"])
def test_nothing_is_fetched(keyword: str, tmp_path: Any) -> None:
    local = tmp_path / "schema.json"
    local.write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        remote = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        for address in (remote, local.as_uri(), str(local), "schema.json"):
            schema: dict[str, Any] = {"properties": {"a": {keyword: address}}}
            if keyword == "$schema":
                schema = {"$schema": address}
            if keyword == "$id and $ref":
                schema = {"$id": address if "://" in address else remote, "properties": {"a": {"$ref": "other.json"}}}
            with pytest.raises(InvalidSchema):
                text_of(json.dumps(schema), Format.JSON_SCHEMA)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_reference_inside_is_followed() -> None:
    tree = schema_of({"$id": "https://a.example/t", "properties": {"n": {"$ref": "#"}, "v": {"type": "integer"}}})
    assert fault_of(tree, {"n": {"n": {"v": 1}}}) is None
    assert str((fault_of(tree, {"n": {"n": {"v": "x"}}}) or ("",))[0]) == "/n/n/v"


def test_a_pattern_takes_time_in_proportion() -> None:
    evil = schema_of({"pattern": "^(a+)+$"})
    began = time.monotonic()
    assert fault_of(evil, "a" * 500_000 + "b") is not None
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "image/png"])
@pytest.mark.parametrize("schema", [True, ["string"]])
def test_what_is_no_json_does_not_fit(kind: str, schema: Any) -> None:
    fault = schema_of(schema).fault(b'"x"', kind)
    assert fault is not None
    assert kind in fault.text
    assert schema_of(schema).fault(b'{"string":"x"}', "application/cloudevents+json") is None


def test_what_is_told_is_short() -> None:
    long = "k" * 100_000
    for schema, value in (
        ({"additionalProperties": {"type": "integer"}}, {long: "x"}),
        ({"additionalProperties": {"type": "integer"}}, {"a": long}),
        ({"type": "map", "values": "int"}, {long: "x"}),
        ({"type": "map", "values": "int"}, {"a": long}),
    ):
        fault = fault_of(schema_of(schema), value)
        assert fault is not None
        assert len(fault[0]) <= 1_000
        assert len(fault[1]) <= 300


def test_numbers_that_can_not_be_read_do_not_fit() -> None:
    for schema in ({"type": "number"}, ["double"]):
        assert schema_of(schema).fault(b"1e999", None) is not None
    assert schema_of({"type": "integer"}).fault(b"1" * 400, None) is None
