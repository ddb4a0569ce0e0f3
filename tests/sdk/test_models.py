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

ANSWERS = {
    "AppendAnswer": models.Appended,
    "JobClaimed": models.ClaimedJob,
    "AckAnswer": models.Acked,
    "NackAnswer": models.Nacked,
    "FailAnswer": models.Failed,
    "ExtendAnswer": models.Extended,
    "PutAnswer": models.TopicPut,
    "ResolvedConfig": models.TopicConfig,
    "StateAnswer": models.TopicState,
    "QueueCounts": models.QueueCounts,
    "ListItem": models.TopicSummary,
    "DeleteAnswer": models.TopicRemoved,
    "ControlAnswer": models.Control,
    "DrainAnswer": models.Drained,
    "RecordsDeletedAnswer": models.RecordsDeleted,
    "DiffAnswer": models.Diff,
    "RecordShown": models.LogRecord,
    "Tombstone": models.LostRecords,
    "WatchAnswer": models.Watch,
    "WatchedTopic": models.WatchedTopic,
    "JobAnswer": models.Job,
    "HistoryAnswer": models.History,
    "JobEvent": models.Event,
    "ResultAnswer": models.Outcome,
    "DeadLetterPlace": models.DeadLetterPlace,
    "ShownProgress": models.Reported,
    "CancelAnswer": models.Cancelled,
    "ReleaseAnswer": models.Released,
    "RequeueAnswer": models.Matched,
    "OperationAnswer": models.Operation,
    "TenantStats": models.TenantStats,
    "TopicStats": models.TopicStats,
    "StatsHistoryAnswer": models.StatsHistory,
    "StatsStep": models.StatsStep,
    "DepthStep": models.DepthStep,
    "TopicSeen": models.TopicOverview,
    "Minutes": models.Minutes,
    "TroubleShown": models.Trouble,
    "Durations": models.Times,
    "AsOfAnswer": models.AsOf,
    "JobThen": models.PastJob,
    "WhyNot": models.Reason,
    "ExplainJobAnswer": models.JobExplanation,
    "ExplainTopicAnswer": models.TopicExplanation,
    "ScaleAnswer": models.Scale,
    "FailuresAnswer": models.Failures,
    "FailureCluster": models.FailureCluster,
    "Deliveries": models.Deliveries,
    "FailedJob": models.FailedJob,
    "ClusterDeletedAnswer": models.ClusterDeleted,
    "TopicScheduleItem": models.ScheduleSummary,
    "TopicSchedule": models.Schedule,
    "ScheduleError": models.ScheduleError,
    "ScheduleRun": models.ScheduleRun,
    "KeyShown": models.Key,
    "SecretAnswer": models.Secret,
    "UserTokenAnswer": models.UserToken,
    "Health": models.Health,
    "Ready": models.Ready,
    "AuditEntry": models.AuditEntry,
    "HorizonAnswer": models.Horizon,
    "Position": models.XminPosition,
    "HorizonHolder": models.Holder,
    "Table": models.Table,
    "Reaper": models.Reaper,
    "ReaperRun": models.ReaperRun,
    "RunReaperAnswer": models.RunReaper,
    "SavedViewAnswer": models.SavedView,
    "SavedViewsAnswer": models.SavedViews,
}
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
# What the caller has said itself, and what no client is to look at.
KNOWN = {"ClaimedJob": {"node", "topic"}, "TopicConfig": {"schema", "schema_format"}}
# `seqs` is left out of an answer only where somebody asked for that, and we never do.
UNSAID = {"performance", "routers_removed", "wal_replay_complete", "repeated"}


def wire_names(model: type[Any]) -> set[str]:
    hints = typing.get_type_hints(model, include_extras=True)
    names = set()
    for field in dataclasses.fields(model):
        notes = getattr(hints[field.name], "__metadata__", ())
        names.add(next((note.wire for note in notes if isinstance(note, Named)), field.name))
    return names


@pytest.mark.parametrize("schema", ANSWERS)
def test_a_model_has_what_is_answered(schema: str) -> None:
    model = ANSWERS[schema]
    ours = wire_names(model) - KNOWN.get(model.__name__, set()) - UNSAID
    assert ours == set(SCHEMAS[schema]["properties"]) - KNOWN.get(model.__name__, set()) - UNSAID


@pytest.mark.parametrize("schema", ASKED)
def test_a_model_has_what_is_taken(schema: str) -> None:
    assert wire_names(ASKED[schema]) == set(SCHEMAS[schema]["properties"])


@pytest.mark.parametrize("schema", ANSWERS)
def test_what_may_be_absent_has_a_default(schema: str) -> None:
    """Else an answer without it could not be read."""
    hints = typing.get_type_hints(ANSWERS[schema], include_extras=True)
    required = set(SCHEMAS[schema].get("required", ()))
    for field in dataclasses.fields(ANSWERS[schema]):
        notes = getattr(hints[field.name], "__metadata__", ())
        name = next((note.wire for note in notes if isinstance(note, Named)), field.name)
        has_default = (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
        assert has_default or name in required | {"node", "topic", "repeated", "seqs"}, name


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
