"""The models have what the service answers and takes, as the OpenAPI document has it: no more, no less, by the same
names."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest

from holdfast import models
from holdfast._decode import read
from holdfast.errors import InvalidResponse
from holdfast.models.marks import Named
from tests.routes import document

SCHEMAS: dict[str, Any] = document()["components"]["schemas"]

ASKED = {
    "Record": models.Record,
    "AskedInFull": models.TopicConfig,
    "Backoff": models.Backoff,
    "Webhook": models.Webhook,
    "RequeueFilter": models.RequeueFilter,
    "RequeueCanary": models.Canary,
    "CancelFilter": models.CancelFilter,
    "ProgressBody": models.Progress,
}
# Models of the answers' names, with or without "Answer", and those of other names.
OTHERS = (
    *(("AppendAnswer", "Appended"), ("AckAnswer", "Acked")),
    *(("NackAnswer", "Nacked"), ("FailAnswer", "Failed"), ("ExtendAnswer", "Extended")),
    *(("PutAnswer", "TopicPut"), ("ResolvedConfig", "TopicConfig"), ("StateAnswer", "TopicState")),
    *(("ListItem", "TopicSummary"), ("DeleteAnswer", "TopicRemoved"), ("DrainAnswer", "Drained")),
    *(("RecordShown", "LogRecord"), ("Tombstone", "LostRecords"), ("JobEvent", "Event")),
    *(("ResultAnswer", "Outcome"), ("ShownProgress", "Reported"), ("CancelAnswer", "Cancelled")),
    *(("ReleaseAnswer", "Released"), ("RequeueAnswer", "Matched"), ("TopicSeen", "TopicOverview")),
    *(("TroubleShown", "Trouble"), ("Durations", "Times"), ("JobThen", "PastJob"), ("WhyNot", "Reason")),
    *(("ExplainJobAnswer", "JobExplanation"), ("ExplainTopicAnswer", "TopicExplanation")),
    *(("TopicScheduleItem", "ScheduleSummary"), ("TopicSchedule", "Schedule"), ("KeyShown", "Key")),
    *(("Position", "XminPosition"), ("HorizonHolder", "Holder")),
)
ANSWERS: dict[str, Any] = {schema: getattr(models, model) for schema, model in OTHERS} | {
    schema: getattr(models, model)
    for model in sorted(set(models.__all__) - set(dict(OTHERS).values()) - set(ASKED) - {"UserEvent", "Tombstone"})
    if (schema := model if model in SCHEMAS else f"{model}Answer") in SCHEMAS
}
# What the caller has said itself, and what no client is to look at.
KNOWN = {"ClaimedJob": {"node", "topic"}, "TopicConfig": {"schema", "schema_format"}}
# `seqs` is left out of an answer only where somebody asked for that, and we never do.
UNSAID = {"performance", "routers_removed", "wal_replay_complete", "repeated"}


def wire_names(model: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """Its fields, by the names that they have in an answer."""
    hints = typing.get_type_hints(model, include_extras=True)
    names = {}
    for field in dataclasses.fields(model):
        notes = getattr(hints[field.name], "__metadata__", ())
        names[next((note.wire for note in notes if isinstance(note, Named)), field.name)] = field
    return names


@pytest.mark.parametrize("schema", ANSWERS)
def test_a_model_has_what_is_answered(schema: str) -> None:
    model = ANSWERS[schema]
    fields = wire_names(model)
    left_out = KNOWN.get(model.__name__, set()) | UNSAID
    assert set(fields) - left_out == set(SCHEMAS[schema]["properties"]) - left_out
    # What may be absent has a default, else an answer without it could not be read.
    required = set(SCHEMAS[schema].get("required", ())) | {"node", "topic", "repeated", "seqs"}
    for name, field in fields.items():
        has_default = (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
        assert has_default or name in required, name


@pytest.mark.parametrize("schema", ASKED)
def test_a_model_has_what_is_taken(schema: str) -> None:
    assert set(wire_names(ASKED[schema])) == set(SCHEMAS[schema]["properties"])


def test_every_model_is_frozen_and_exported() -> None:
    for name in models.__all__:
        model = getattr(models, name)
        if isinstance(model, type):
            assert dataclasses.is_dataclass(model), name
            assert model.__dataclass_params__.frozen, name  # type: ignore[attr-defined]
            assert "__slots__" in model.__dict__, name


def test_what_a_newer_service_adds_is_left_out() -> None:
    assert read(models.Health, {"status": "ok", "version": "9", "uptime_ms": 1, "mood": "fine"}).version == "9"


@pytest.mark.parametrize("answer", [{}, [], "ok", None, {"status": "ok"}])
def test_what_is_no_answer_of_the_service_is_an_error_of_its_own(answer: object) -> None:
    with pytest.raises(InvalidResponse):
        read(models.Health, answer)
