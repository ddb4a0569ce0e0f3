"""Settings as texts of a form: what stands in the fields is what is stored, and what is typed is what the API takes."""

from __future__ import annotations

import msgspec
import pytest

from app.features.topics import config_form as settings
from app.features.topics.config_form import Source
from app.kernel.audit import trail
from app.kernel.model import Topic
from app.kernel.topics.backoff import Backoff
from app.kernel.topics.policy import DEFAULTS, Policy, in_effect, of_messages
from app.kernel.topics.settings import FIELDS, Chosen, Exhaustion, TopicType
from app.kernel.topics.webhooks import Webhook

NAME = "orders"
QUEUE = Chosen(type=TopicType.QUEUE, max_deliveries=0, lease_ms=30_000, ttl_ms=0)
FULL = msgspec.structs.replace(
    QUEUE,
    max_deliveries=7,
    backoff=Backoff(kind="exponential"),
    tenant_weights={"ada": 3, "<b>": 1},
    accepts=("text/plain",),
    webhook=Webhook("https://example.com/", ("failed",), "********1234"),
    priority=-5,
    replayable=True,
)
LOG = Chosen(max_deliveries=0, lease_ms=30_000, ttl_ms=0, cap_records=9)
ALL = {"queue": QUEUE, "full": FULL, "log": LOG, "left to the service": of_messages(NAME)}


def shown(chosen: Chosen) -> dict[str, settings.FormSetting]:
    policy = Policy(Topic(NAME, 1, 1), in_effect(NAME, chosen, DEFAULTS), 1, chosen)
    return {one.name: one for part in settings.parts(policy, DEFAULTS, {}, {}).values() for one in part}


def test_a_page_has_every_setting_once() -> None:
    assert len(settings.SETTINGS) == len(set(settings.SETTINGS))
    without_effect = {"priority", "auto_priority", "leases_durable"}
    assert set(settings.SETTINGS) == set(FIELDS) - {"configured"} - without_effect


@pytest.mark.parametrize("chosen", ALL.values(), ids=ALL)
def test_fields_that_are_left_alone_change_nothing(chosen: Chosen) -> None:
    edit = settings.edit_of(NAME, chosen, {name: one.typed for name, one in shown(chosen).items()})
    assert (edit.now, edit.errors) == (chosen, {})


@pytest.mark.parametrize("chosen", ALL.values(), ids=ALL)
def test_an_empty_field_is_the_default_that_the_page_names(chosen: Chosen) -> None:
    before = shown(chosen)
    empty = {name: "" for name, one in before.items() if not one.fixed}
    edit = settings.edit_of(NAME, chosen, empty)
    assert edit.errors == {}
    after = shown(edit.now)
    assert {name: after[name].value for name in empty} == {name: before[name].default for name in empty}
    assert {after[name].source for name in empty} <= {Source.DEFAULT, Source.SERVICE}


@pytest.mark.parametrize(
    ("name", "typed", "wrong"),
    [
        ("max_depth", "many", "whole number"),
        ("max_depth", "-1", ">= 0"),
        ("ttl_ms", "9" * 30, "315360000000"),
        ("wait_goal_ms", "315360000001", "315360000000"),
        ("wait_goal_ms", "1 week", "a length of time"),
        ("wait_goal_ms", "-1 s", "a length of time"),
        ("wait_goal_ms", "3651 d", "315360000000"),
        ("tenant_weights", '{"a": 0}', ">= 1"),
        ("tenant_weights", "{", "Must be JSON"),
        ("tenant_weights", "[" * 5_000, "Must be JSON"),
        ("backoff", '{"kind": "sideways"}', "sideways"),
        ("replayable", "perhaps", "bool"),
        ("on_exhausted", "dance", "dance"),
        ("dead_letter", NAME, "its own dead-letter topic"),
        ("dead_letter", "<script>", "must start with a letter"),
        ("dead_letter", "a\0b", "NUL"),
    ],
)
def test_what_the_api_refuses_is_said_beside_the_field(name: str, typed: str, wrong: str) -> None:
    edit = settings.edit_of(NAME, QUEUE, {"max_depth": "5", name: typed})
    assert list(edit.errors) == [name]
    assert wrong in edit.errors[name]
    assert edit.now == QUEUE


def test_a_length_of_time_is_read_and_typed_with_its_unit() -> None:
    edit = settings.edit_of(NAME, QUEUE, {"aging_ms": "5 min", "wait_goal_ms": "1 min 30 s", "dead_ttl_ms": "1500 ms"})
    assert (edit.now.aging_ms, edit.now.wait_goal_ms, edit.now.dead_ttl_ms) == (300_000, 90_000, 1_500)
    after = shown(edit.now)
    assert [after[name].typed for name in ("aging_ms", "wait_goal_ms", "dead_ttl_ms")] == ["5 min", "90 s", "1500 ms"]
    assert (after["lease_ms"].typed, after["lease_ms"].default) == ("30 s", "30 s")
    told = {one.name: (one.before, one.after) for one in settings.differences(QUEUE, edit.now, DEFAULTS)}
    assert told["aging_ms"] == ("0", "5 min")


def test_values_are_clamped_as_the_api_clamps_them() -> None:
    edit = settings.edit_of(NAME, QUEUE, {"lease_ms": "1", "claim_jitter_ms": "999999"})
    assert (edit.now.lease_ms, edit.now.claim_jitter_ms) == (100, 5_000)


def test_where_jobs_go_follows_from_a_dead_letter_topic_unless_it_was_chosen() -> None:
    named = settings.edit_of(NAME, QUEUE, {"dead_letter": "dead"}).now
    assert (named.dead_letter, named.on_exhausted) == ("dead", Exhaustion.DEAD_LETTER)
    assert settings.edit_of(NAME, named, {"dead_letter": ""}).now == QUEUE
    fails = msgspec.structs.replace(QUEUE, on_exhausted=Exhaustion.FAIL)
    assert settings.edit_of(NAME, fails, {"dead_letter": "dead"}).now.on_exhausted is Exhaustion.FAIL
    new = of_messages(NAME)
    assert settings.edit_of(NAME, new, {"dead_letter": "dead"}).now == msgspec.structs.replace(new, dead_letter="dead")


def test_what_cannot_be_set_here_is_left() -> None:
    new = of_messages(NAME)
    typed = {"type": "log", "max_deliveries": "5", "max_retries": "9"}
    assert settings.edit_of(NAME, new, typed).now == msgspec.structs.replace(new, max_retries=9)
    assert settings.edit_of(NAME, QUEUE, typed).now == msgspec.structs.replace(QUEUE, max_deliveries=5)
    assert settings.edit_of(NAME, LOG, {"max_depth": "5"}).now == LOG
    assert shown(new)["max_deliveries"].source is Source.FOLLOWS
    assert shown(LOG)["max_depth"].source is Source.TYPE


def test_a_threshold_that_is_left_open_follows_from_max_retries() -> None:
    new = of_messages(NAME)
    before, after = shown(new), shown(settings.edit_of(NAME, new, {"max_retries": "9"}).now)
    assert (before["dlq_threshold"].value, before["dlq_threshold"].source) == ("3", Source.SERVICE)
    follows = after["dlq_threshold"]
    assert (follows.typed, follows.value, follows.default, follows.source) == ("", "9", "9", Source.FOLLOWS)
    assert not follows.fixed


@pytest.mark.parametrize("after", ALL.values(), ids=ALL)
@pytest.mark.parametrize("before", ALL.values(), ids=ALL)
def test_undoing_puts_back_what_was(before: Chosen, after: Chosen) -> None:
    if before.type is not after.type or before == after:
        return
    detail = trail.changes(msgspec.to_builtins(before), msgspec.to_builtins(after))
    now = settings.undo(after, msgspec.json.encode(detail).decode())
    assert now == msgspec.structs.replace(before, configured=after.configured)


@pytest.mark.parametrize("detail", ["{}", '{"paused": {"from": false, "to": true}}', '{"configured": {"from": false}}'])
def test_what_has_no_settings_cannot_be_undone(detail: str) -> None:
    assert settings.undo(QUEUE, detail) is None
