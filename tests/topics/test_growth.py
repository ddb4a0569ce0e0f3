"""Schemas whose alternatives multiply: how often they look at a value, and that it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.errors import InvalidSchema
from app.kernel.schemas.growth import visits
from app.kernel.schemas.schemas import text_of
from tests.topics.test_schemas import fault_of, schema_of


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"n": value, "m": 1}
    return value


TWICE = {
    "$defs": {
        "one": {"required": ["z"], "properties": {"n": {"$ref": "#"}}},
        "other": {"required": ["m"], "properties": {"n": {"$ref": "#"}}},
        "end": {"maxProperties": 0},
    },
    "anyOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/other"}, {"$ref": "#/$defs/end"}],
}


def test_a_schema_that_multiplies_with_each_level_takes_no_longer_than_it_may() -> None:
    """Else the deepest of these would take for ever."""
    twice = schema_of(TWICE)
    for levels in (0, 11, 12, 18, 19, 60, 126):
        fault = fault_of(twice, nested(levels))
        assert (fault is None) == (levels <= 18), levels
        assert fault_of(twice, [nested(levels)] * 300) is not None or levels < 12
        bad = nested(levels)
        bad["m"], bad["n"] = None, {"n": {"x": 1}}
        assert fault_of(twice, {"m": 1, "n": {"q": bad}}) is not None


@pytest.mark.parametrize(
    ("schema", "levels"),
    [
        ({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}, None),
        ({"$defs": {"t": {"type": "string"}}, "properties": {n: {"$ref": "#/$defs/t"} for n in "abcdefgh"}}, None),
        ({"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "string"}]}, None),
        ({"$ref": "#"}, None),
        ({"allOf": [{"$ref": "#"}, {"properties": {"a": {"$ref": "#"}}}]}, None),
        (TWICE, [1, 2, 4, 8]),
        ({"items": {"$ref": "#"}, "contains": {"$ref": "#"}}, [1, 2, 4, 8]),
        ({"$id": "http://x/y", "anyOf": [{"items": {"$ref": "http://x/y"}}, {"items": {"$ref": "#"}}]}, [1, 2, 4, 8]),
        ({"$dynamicAnchor": "n", "anyOf": [{"items": {"$dynamicRef": "#n"}}] * 3}, [1, 3, 9, 27]),
        (
            {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"b": {"$ref": "#"}, "c": {"$ref": "#"}}},
            [1, 3, 9, 27],
        ),
    ],
)
def test_how_often_a_value_is_looked_at(schema: Any, levels: list[int] | None) -> None:
    found = visits(json.loads(json.dumps(schema)))
    assert (None if found is None else found[:4]) == levels


def test_alternatives_that_multiply_are_refused() -> None:
    twice: dict[str, Any] = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    schema = {"$defs": {**twice, "d40": {"type": "string"}}, "$ref": "#/$defs/d0"}
    with pytest.raises(InvalidSchema, match="apply to the same value"):
        text_of(json.dumps(schema))
