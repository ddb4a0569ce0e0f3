"""The OWASP API Security Top 10 of 2023, and by which tests each line holds. test_owasp.py keeps it true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec


class Line(msgspec.Struct, frozen=True):
    """A line of the list. `tests` by file, without its folder `tests`; "*": all that the file has."""

    title: str
    promise: str
    tests: Mapping[str, tuple[str, ...]]


ALL: Final = ("*",)
TOP_TEN: Final[Mapping[str, Line]] = {
    "API1": Line(
        "Broken object level authorization",
        "What is another's is answered as what there is not, on every route; nothing of it changes.",
        {
            "security/test_objects": ALL,
            "security/test_cursors": ALL,
            "api/test_scopes": ("test_a_key_of_other_topics_gets_nowhere", "test_a_user_of_other_topics_gets_nowhere"),
            "api/test_tenant_keys": ALL,
            "api/test_access": (
                "test_a_key_reaches_the_topics_of_its_prefixes_only",
                "test_a_list_shows_a_key_its_own_topics",
            ),
            "api/messages/test_access": (
                "test_a_key_of_other_topics_neither_sees_nor_settles",
                "test_a_dead_letter_in_a_topic_of_others_is_out_of_reach",
            ),
            "races/test_fences": ALL,
        },
    ),
    "API2": Line(
        "Broken authentication",
        "Nothing opens without a good key, token or password; guessing is slow, and tells nothing.",
        {
            "security/test_guessing": ALL,
            "api/test_access": ("test_without_a_key_nothing_opens", "test_the_key_comes_first"),
            "api/test_scopes": ("test_it_refuses_who_shows_no_key", "test_no_other_route_takes_a_key_from_the_query"),
            "api/test_sign_in": ALL,
            "api/test_keys": (
                "test_a_revoked_key_opens_nothing_from_then_on",
                "test_a_key_expires_by_itself",
                "test_a_stream_ends_with_its_key",
            ),
            "signin/test_tokens": ALL,
            "signin/test_limiter": ALL,
            "signin/test_passwords": ("test_a_user_that_there_is_not_matches_nothing_and_takes_as_long",),
        },
    ),
    "API3": Line(
        "Broken object property level authorization",
        "A body sets what the document names; an answer has what the document names, and no secret.",
        {
            "security/test_properties": ALL,
            "api/test_exchanges": ("test_real_answers_are_as_it_says",),
            "api/test_keys": ("test_other_fields_and_parameters_are_refused",),
            "webhooks/test_settings": ("test_a_secret_is_shown_never_again",),
        },
    ),
    "API4": Line(
        "Unrestricted resource consumption",
        "All that comes from outside has a bound, and the memory of the service too.",
        {
            "security/test_exhaustion": ALL,
            "api/test_limits": ALL,
            "api/test_slow_clients": ALL,
            "api/test_memory": ALL,
            "api/test_quotas": ALL,
            "api/test_bad_input": ("test_it_is_refused_and_changes_nothing",),
            "api/test_examples": ("test_every_number_and_list_that_is_sent_has_a_bound",),
        },
    ),
    "API5": Line(
        "Broken function level authorization",
        "Each route opens to the scopes and grants of one table, and to no others.",
        {
            "api/test_scopes": (
                "test_every_route_is_declared_and_no_row_is_without_its_route",
                "test_it_needs_each_of_its_scopes",
                "test_a_user_needs_a_grant_of_each_of_its_scopes",
                "test_pages_need_a_key_as_their_routes_do",
            ),
            "api/test_access": ("test_a_route_opens_to_the_scopes_that_it_needs",),
            "sql/test_rights": ALL,
        },
    ),
    "API6": Line(
        "Unrestricted access to sensitive business flows",
        "Keys, topics and watches are bounded in number; what changes much is for few, and is in the audit trail.",
        {
            "api/test_keys": (
                "test_the_number_of_live_keys_is_bounded",
                "test_a_key_makes_none_that_may_do_more",
            ),
            "api/test_users": ("test_nobody_makes_a_user_who_may_do_more",),
            "api/test_audit": (
                "test_purges_replays_cancellations_and_deletions_are_in_it",
                "test_it_is_only_ever_added_to",
                "test_a_change_that_can_not_be_recorded_is_not_made",
            ),
            "api/test_many_watches": ALL,
            "test_limits_of_topics": ALL,
        },
    ),
    "API7": Line(
        "Server side request forgery",
        "A webhook goes to nothing that is private, by whatever name, redirect or change of a name.",
        {
            "security/test_ssrf": ALL,
            "webhooks/test_sending": (
                "test_what_is_not_public_is_blocked",
                "test_a_name_that_is_another_one_a_moment_later_leads_nowhere_else",
                "test_only_who_has_a_certificate_for_the_name_is_told",
            ),
            "topics/test_schemas": ALL,
        },
    ),
    "API8": Line(
        "Security misconfiguration",
        "Headers are those that were looked at; nothing is open to others, and no secret is printed, by default.",
        {
            "security/test_headers": ALL,
            "security/test_secrets": ALL,
            "admin/test_session": ALL,
            "admin/test_payloads": ALL,
            "admin/test_planted_markup": ALL,
            "test_supervisor": (
                "test_an_address_that_others_reach_needs_a_key_and_one_of_the_database_will_do",
                "test_secrets_are_in_no_environment_once_it_runs",
            ),
            "test_deploy": ALL,
        },
    ),
    "API9": Line(
        "Improper inventory management",
        "Routes, document, manual and these tables name the same; parts are pinned, and listed.",
        {
            "security/test_inventory": ALL,
            "security/test_parts": ALL,
            "api/test_openapi": ("test_it_has_every_route_and_no_other", "test_the_list_in_docs_is_current"),
        },
    ),
    "API10": Line(
        "Unsafe consumption of APIs",
        "What Redis says or a receiver answers is a hint and a status, whatever it is.",
        {
            "security/test_poison": ALL,
            "topics/test_tier": ("test_what_is_no_policy_is_passed_over",),
            "webhooks/test_sending": (
                "test_a_huge_answer_is_not_read",
                "test_a_head_without_end_and_silence_are_given_up",
            ),
        },
    ),
}
