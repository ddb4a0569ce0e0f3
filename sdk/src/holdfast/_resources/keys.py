"""API keys: `client.keys`."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import models
from holdfast._verbs import Resource, S, listing, verb
from holdfast._wire import Repeat, Request, encode, path, reads, reads_page, without_none
from holdfast.models.keys import Scope


class Keys(Resource[S]):
    """API keys, by id. All calls need the scope admin."""

    @listing
    def list(self, *, page_size: int | None = None, cursor: str | None = None) -> Request[models.Page[models.Key]]:
        """All keys, without their secrets."""
        return Request(
            "GET",
            path("keys"),
            reads_page(models.Key, "keys"),
            params={"page_size": page_size, "cursor": cursor},
        )

    @verb
    def make(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        prefixes: Sequence[str] | None = None,
        tenant: str | None = None,
        expires_in_ms: int | None = None,
        hide_payloads: bool = False,
        sqs: bool = False,
    ) -> Request[models.Secret]:
        """Make a key. Its secret is only in this answer.

        - prefixes: restrict the key to topics with these prefixes.
        - tenant: restrict it to this tenant's jobs.
        - hide_payloads: it sees jobs without their payloads and can't claim jobs.
        - sqs: the answer also has its credentials for SQS clients.
        """
        body = {
            **{"name": name, "scopes": tuple(scopes), "prefixes": None if prefixes is None else tuple(prefixes)},
            **{"tenant": tenant, "expires_in_ms": expires_in_ms, "payloads": "hidden" if hide_payloads else None},
            **{"sqs": sqs or None},
        }
        return Request(
            "POST",
            path("keys"),
            reads(models.Secret),
            body=encode(without_none(body)),
            repeat=Repeat.IF_REFUSED,
        )

    @verb
    def get(self, id: str) -> Request[models.Key]:
        """One key."""
        return Request("GET", path("keys", id), reads(models.Key))

    @verb
    def revoke(self, id: str) -> Request[models.Key]:
        """Revoke a key for good."""
        return Request("DELETE", path("keys", id), reads(models.Key))

    @verb
    def rotate(self, id: str, *, grace_ms: int = 0, sqs: bool = False) -> Request[models.Secret]:
        """Give a key a new secret. The old one stays valid for `grace_ms`. `sqs`: as in make."""
        return Request(
            "POST",
            path("keys", id, "rotate"),
            reads(models.Secret),
            body=encode(without_none({"grace_ms": grace_ms, "sqs": sqs or None})),
            repeat=Repeat.IF_REFUSED,
        )
