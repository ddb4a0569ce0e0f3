"""What a topic leaves open, and what is in effect then."""

from __future__ import annotations

import msgspec

from app.kernel.topics.policy import AskedSettings, Defaults, in_effect, of_messages, resolve
from app.kernel.topics.settings import Exhaustion


def test_what_was_chosen_goes_before_the_services_defaults() -> None:
    defaults = Defaults(max_retries=7, dlq_threshold=2, ttl_ms=5, lease_ms=600)
    config = in_effect("t", of_messages("t"), defaults)
    assert (config.max_retries, config.dlq_threshold, config.ttl_ms, config.lease_ms) == (7, 2, 5, 600)
    assert (config.max_deliveries, config.on_exhausted, config.dead_letter) == (2, Exhaustion.DEAD_LETTER, "t.dlq")
    chosen = msgspec.structs.replace(of_messages("t"), max_retries=1, dlq_threshold=0, ttl_ms=0, lease_ms=100)
    config = in_effect("t", chosen, defaults)
    assert (config.max_retries, config.dlq_threshold, config.ttl_ms, config.lease_ms) == (1, 0, 0, 100)
    assert (config.max_deliveries, config.on_exhausted, config.dead_letter) == (1, Exhaustion.FAIL, None)


def test_v0_leaves_nothing_open() -> None:
    config = resolve("t", AskedSettings(type="queue"))
    assert in_effect("t", config, Defaults(9, 9, 9, 999)) == config
