"""The OWASP API Security Top 10 of 2023, and by which tests each line holds. test_owasp.py keeps it true."""

from __future__ import annotations

from typing import Final, NamedTuple


class Line(NamedTuple):
    """A line of the list. `tests`: files, without their folder `tests`."""

    title: str
    promise: str
    tests: str


TOP_TEN: Final = {
    "API1": Line(
        "Broken object level authorization",
        "What is another's is answered as what there is not, on every route; nothing of it changes.",
        "security/test_objects security/test_cursors api/test_tenant_keys api/test_access api/messages/test_access "
        "races/test_fences",
    ),
    "API2": Line(
        "Broken authentication",
        "Nothing opens without a good key, token or password; guessing is slow, and tells nothing.",
        "security/test_guessing api/test_access api/test_first_user api/test_sign_in api/test_keys signin/test_tokens "
        "signin/test_limiter signin/test_passwords",
    ),
    "API3": Line(
        "Broken object property level authorization",
        "A body sets what the document names; an answer has what the document names, and no secret.",
        "security/test_properties api/test_exchanges api/test_keys webhooks/test_settings",
    ),
    "API4": Line(
        "Unrestricted resource consumption",
        "All that comes from outside has a bound, and the memory of the service too.",
        "security/test_exhaustion api/test_limits api/test_slow_clients api/test_memory api/test_quotas "
        "api/test_bad_input api/test_openapi",
    ),
    "API5": Line(
        "Broken function level authorization",
        "Each route opens to the scopes and grants of one table, and to no others.",
        "api/test_scopes api/test_access sql/test_rights",
    ),
    "API6": Line(
        "Unrestricted access to sensitive business flows",
        "Keys, topics and watches are bounded in number; what changes much is for few, and is in the audit trail.",
        "api/test_keys api/test_users api/test_audit api/test_many_watches test_limits_of_topics",
    ),
    "API7": Line(
        "Server side request forgery",
        "A webhook goes to nothing that is private, by whatever name, redirect or change of a name.",
        "security/test_ssrf webhooks/test_sending topics/test_schemas",
    ),
    "API8": Line(
        "Security misconfiguration",
        "Headers are those that were looked at; nothing is open to others, and no secret is printed, by default.",
        "security/test_headers security/test_secrets admin/test_session admin/test_payloads "
        "admin/test_planted_markup test_supervisor test_deploy",
    ),
    "API9": Line(
        "Improper inventory management",
        "Routes, document, manual and these tables name the same; parts are pinned, and listed.",
        "security/test_inventory security/test_parts api/test_openapi",
    ),
    "API10": Line(
        "Unsafe consumption of APIs",
        "What Redis says or a receiver answers is a hint and a status, whatever it is.",
        "security/test_poison topics/test_tier webhooks/test_sending",
    ),
}
