"""What a topic leaves open, and what is in effect then."""

from __future__ import annotations

import msgspec
import pytest

from app.kernel.topics.policy import AskedSettings, Defaults, clamp_lease, in_effect, of_messages, resolve
from app.kernel.topics.settings import Exhaustion

OUT = {"dead": (Exhaustion.DEAD_LETTER, "t.dlq"), "failed": (Exhaustion.FAIL, None)}


@pytest.mark.parametrize(
    ("retries", "threshold", "deliveries", "out"),
    [
        (None, None, 2, "dead"),  # as the service has it: 7 retries, of which 2 before the dead letters
        (5, 3, 3, "dead"),
        (3, 3, 3, "dead"),
        (3, 5, 3, "failed"),
        (1, 0, 1, "failed"),
        (None, 1, 1, "dead"),
        (4, None, 4, "dead"),  # the topic's own retries are the threshold
        (0, None, 1, "failed"),  # one delivery
    ],
)
def test_when_a_job_is_out_and_where_to(retries: int | None, threshold: int | None, deliveries: int, out: str) -> None:
    """docs/semantics.md, section 2, in terms of messages."""
    chosen = msgspec.structs.replace(of_messages("t"), max_retries=retries, dlq_threshold=threshold)
    config = in_effect("t", chosen, Defaults(max_retries=7, dlq_threshold=2))
    assert (config.max_deliveries, (config.on_exhausted, config.dead_letter)) == (deliveries, OUT[out])


def test_a_service_can_turn_dead_letters_off() -> None:
    config = in_effect("t", of_messages("t"), Defaults(max_retries=7, dlq_threshold=0))
    assert (config.max_deliveries, (config.on_exhausted, config.dead_letter)) == (7, OUT["failed"])


def test_what_was_chosen_goes_before_the_services_defaults() -> None:
    defaults = Defaults(max_retries=7, dlq_threshold=2, ttl_ms=5, lease_ms=600)
    config = in_effect("t", of_messages("t"), defaults)
    assert (config.max_retries, config.dlq_threshold, config.ttl_ms, config.lease_ms) == (7, 2, 5, 600)
    chosen = msgspec.structs.replace(of_messages("t"), max_retries=1, dlq_threshold=0, ttl_ms=0, lease_ms=100)
    config = in_effect("t", chosen, defaults)
    assert (config.max_retries, config.dlq_threshold, config.ttl_ms, config.lease_ms) == (1, 0, 0, 100)


def test_v0_leaves_nothing_open() -> None:
    config = resolve("t", AskedSettings(type="queue"))
    assert in_effect("t", config, Defaults(9, 9, 9, 999)) == config


@pytest.mark.parametrize(("asked", "given"), [(-1, 100), (99, 100), (100, 100), (86_400_000, 86_400_000)])
def test_a_lease_is_no_shorter_and_no_longer_than_it_may_be(asked: int, given: int) -> None:
    assert clamp_lease(asked) == given
    assert clamp_lease(86_400_000 + given) == 86_400_000
