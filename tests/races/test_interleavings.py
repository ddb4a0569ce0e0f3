"""Which verbs are let meet each other, and where: each by a gate, a lock, or a transaction that is held open, so that
they meet in every run. A name that is no longer there fails here."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
MATRIX: Final = "races/test_serial.py::test_two_verbs_come_to_what_one_after_the_other_would"

# MATRIX takes each pair of verbs that a job in some state is open to, in every order in which their steps can meet.
FORCED: Final = {
    "claim × claim": ("races/test_claimers.py::test_two_sessions_never_lease_one_job", MATRIX),
    "claim × ack": ("races/test_fences.py::test_an_ack_of_an_ended_lease_does_not_wait_for_who_claims", MATRIX),
    "claim × nack": ("races/test_claimers.py::test_a_return_that_commits_late_is_claimed", MATRIX),
    "claim × cancel": (
        "races/test_changes.py::test_a_cancel_that_waits_for_a_claim_marks",
        "races/test_changes.py::test_a_claim_passes_over_what_is_being_cancelled",
        MATRIX,
    ),
    "claim × change": ("races/test_changes.py::test_a_change_that_waits_for_a_claim_is_refused", MATRIX),
    "claim × enqueue": ("races/test_claimers.py::test_an_earlier_position_that_commits_late_is_claimed",),
    "claim × expiry of a time to live": ("races/test_claimers.py::test_a_claim_under_way_is_not_expired", MATRIX),
    "claim × dead-lettering": (MATRIX,),
    "claim × purge, delete": (MATRIX,),
    "claim × DDL": (
        "races/test_ddl.py::test_what_waits_behind_a_change_of_the_table_goes_on_when_that_gives_up",
        "races/test_ddl.py::test_a_claim_that_waits_for_a_change_of_the_table_is_done",
    ),
    "ack × ack": ("races/test_lost_verbs.py::test_of_two_that_settle_the_first_counts", MATRIX),
    "ack × expiry of the lease": (
        "races/test_fences.py::test_an_ack_under_way_when_its_lease_ends_keeps_the_job",
        "races/test_fences.py::test_one_whose_clock_stood_still_is_late_all_the_same",
        MATRIX,
    ),
    "extend × expiry of the lease": (
        "races/test_fences.py::test_an_extension_under_way_when_its_lease_ends_keeps_the_job",
        "races/test_fences.py::test_an_extension_of_an_ended_lease_does_not_keep_it_from_who_claims",
        MATRIX,
    ),
    "ack, nack, extend × extend": (
        "races/test_lost_verbs.py::test_it_waits_for_a_heartbeat_and_is_done",
        "races/test_lost_verbs.py::test_it_waits_for_a_heartbeat_that_is_taken_back_and_is_done",
        MATRIX,
    ),
    "ack × reap": (MATRIX,),
    "extend × reap": (
        "races/test_lost_verbs.py::test_a_way_out_that_meets_a_heartbeat_changes_nothing_and_can_run_again",
        MATRIX,
    ),
    "reap × reap": (
        "races/test_lost_verbs.py::test_a_job_is_buried_once",
        "races/test_claimers.py::test_two_sweeps_at_once_expire_a_job_once",
        MATRIX,
    ),
    "cancel × ack, nack, extend": ("races/test_changes.py::test_a_cancel_that_waits_for_an_ack_finds_nothing", MATRIX),
    "change × change": (
        "races/test_changes.py::test_of_two_changes_the_second_keeps_what_the_first_has_changed",
        MATRIX,
    ),
    "enqueue × enqueue of one key": (
        "races/test_keys.py::test_of_two_producers_the_second_updates",
        "races/test_keys.py::test_of_two_producers_the_second_inserts_where_the_first_is_rolled_back",
    ),
    "enqueue × claim of one key": (
        "races/test_keys.py::test_a_producer_that_waits_for_a_claim_inserts_a_second",
        "races/test_keys.py::test_a_producer_that_waits_for_a_claim_that_is_taken_back_updates",
    ),
    "enqueue × nack of one key": (
        "races/test_keys.py::test_a_return_that_waits_for_a_producer_ends",
        "races/test_keys.py::test_a_producer_that_waits_for_a_return_updates_it",
    ),
    "nack × nack of one key": ("races/test_keys.py::test_of_two_returns_the_newer_lives",),
    "enqueue × enqueue of one dedupe id": (
        "races/test_dedupe.py::test_the_second_waits_and_answers_the_firsts_job",
        "races/test_dedupe.py::test_the_second_is_the_first_where_that_is_rolled_back",
    ),
    "enqueue × enqueue of one batch": ("races/test_dedupe.py::test_a_repeated_batch_waits_for_the_first",),
    "enqueue × enqueue of one group": (
        "races/test_groups.py::test_of_two_producers_the_second_waits_and_comes_second",
        "races/test_groups.py::test_where_the_first_producer_is_rolled_back_the_second_comes_out",
    ),
    "claim × claim of one group": (
        "races/test_groups.py::test_of_two_claimers_one_has_the_head_and_the_other_nothing",
    ),
    "ack × enqueue of one group": (
        "races/test_groups.py::test_a_follower_that_comes_while_its_head_is_acked_is_not_stuck",
        "races/test_groups.py::test_a_producer_that_meets_the_end_of_its_group_begins_it_anew",
    ),
    "promote × promote of one group": ("races/test_groups.py::test_of_two_who_let_through_one_does",),
    "requeue × claim, purge, delete, requeue": (
        "races/test_requeue.py::test_the_rival_is_first",
        "races/test_requeue.py::test_the_requeue_is_first",
        MATRIX,
    ),
    "requeue × enqueue of one key": ("races/test_requeue.py::test_a_producer_of_its_key_is_inserting",),
    "topic deletion × enqueue": (
        "races/test_topic_deletion.py::test_it_waits_for_an_enqueue_under_way_and_leaves_nothing",
    ),
    "topic deletion × claim, ack": ("races/test_topic_deletion.py::test_it_waits_for_a_verb_under_way",),
    "topic deletion × topic deletion": ("races/test_topic_deletion.py::test_of_two_deletions_one_counts",),
    "dead letter to a log × ack": ("races/test_interments.py::test_a_job_is_in_one_place_whoever_comes_first",),
    "schedule × schedule": ("reapers/test_timetable.py::test_two_processes_at_one_time_make_one_job",),
    "reaper × reaper": ("reapers/test_runs.py::test_of_many_that_want_a_turn_at_once_one_has_it",),
    "append × append, read of a log": ("races/test_readers.py::test_an_append_waits_for_one_that_has_not_committed",),
    "event × event of one user": ("races/test_user_events.py::test_the_second_draws_its_id_after_the_firsts_commit",),
}


def test_there_are_twenty_and_more() -> None:
    assert len(FORCED) >= 20


@pytest.mark.parametrize("pair", FORCED)
def test_they_are_where_it_says(pair: str) -> None:
    assert FORCED[pair]
    for place in FORCED[pair]:
        path, name = place.split("::")
        there = [
            node.name
            for node in ast.walk(ast.parse((TESTS / path).read_text()))
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
        ]
        assert name in there, place
