"""The webhook of a topic: its configuration, its allowed URLs, and its secret, which is stored apart from the
configuration. docs/webhooks.md, docs/adr/0041.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from app.base.db import sql
from app.base.keys import OWN
from app.errors import Forbidden, InvalidRequest

if TYPE_CHECKING:
    from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_KEEP_SECRET = _SQL["keep_secret"]
_SECRET = _SQL["webhook_secret"]

DELIVERIES: Final = OWN + "webhooks"
MAX_URL_BYTES: Final = 2048
MASK: Final = "********"  # the beginning of the mask that is shown in place of a secret

Event = Literal["completed", "failed", "dead_lettered"]
EVENTS: Final[tuple[Event, ...]] = ("completed", "failed", "dead_lettered")
Secret = Annotated[str, Meta(min_length=8, max_length=256, description="Signs requests. It is never shown again.")]


class Webhook(msgspec.Struct, frozen=True):
    """Where to send an HTTP request when a job ends. Without url, requests are sent only for records that have a URL of
    their own. secret signs the requests and is never shown again: answers have a mask in its place. Sending the mask
    back keeps the secret."""

    url: (
        Annotated[
            str,
            Meta(max_length=MAX_URL_BYTES, extra_json_schema={"format": "uri"}, description="Where to send requests."),
        ]
        | None
    ) = None
    on: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=3, description="The ends that send a request.")] = (
        EVENTS
    )
    secret: Secret | None = None


class AskedWebhook(Webhook, frozen=True, forbid_unknown_fields=True):
    """Where to send an HTTP request when a job ends. Without url, requests are sent only for records that have a URL of
    their own. secret signs the requests and is never shown again: answers have a mask in its place. Sending the mask
    back keeps the secret."""


def check_url(url: str, what: str) -> str:
    """Check a webhook's URL and return it. Raises InvalidRequest, whose message begins with `what`."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url or len(url) > MAX_URL_BYTES:
        raise InvalidRequest(f"{what} must be an http:// or https:// URL of up to {MAX_URL_BYTES} ASCII characters.")
    if "@" in parts.netloc or "#" in url:
        raise InvalidRequest(f"{what} can't have a user, a password or a fragment.")
    return url


def is_own(topic: str) -> bool:
    """Whether a topic is one of the service's own."""
    return topic.startswith(OWN)


def check_records(topic: str, hook: Webhook | None, *, signs: bool) -> None:
    """Check that a topic takes records with webhooks, either its own `hook` or theirs. `signs`: the service has a
    secret.

    Raises Forbidden for the service's own topics, and InvalidRequest if there is no secret to sign with.
    """
    if is_own(topic):
        raise Forbidden("You can't enqueue to the service's own topics.", {"topic": topic})
    if not signs and (hook is None or hook.secret is None):
        raise _no_secret_error(topic)


def check_dead_letter(topic: str | None) -> None:
    """Check that dead letters can go to a topic. The service's own topics can't take any, because their jobs are signed
    and sent. Raises InvalidRequest.
    """
    if topic is not None and is_own(topic):
        raise InvalidRequest("The service's own topics can't take dead letters.", {"dead_letter": topic})


def check_setting(topic: str, hook: Webhook | None, *, signs: bool) -> None:
    """Check that a topic can have this webhook. Raises InvalidRequest."""
    if hook is not None and hook.url is not None:
        check_url(hook.url, "webhook.url")
        if not signs and hook.secret is None:
            raise _no_secret_error(topic)


def _no_secret_error(topic: str) -> InvalidRequest:
    return InvalidRequest(
        "There is no secret to sign with. Give the topic's webhook a secret, or set HOLDFAST_WEBHOOK_SECRET.",
        {"topic": topic},
    )


def conceal(hook: Webhook | None) -> tuple[Webhook | None, str | None]:
    """Replace a webhook's secret by a mask. Returns the webhook, and the secret, which is None if the webhook has none
    or has a mask already."""
    if hook is None or hook.secret is None or hook.secret.startswith(MASK):
        return hook, None
    # Each secret gets a new mask, so that the audit trail shows that it was changed.
    return msgspec.structs.replace(hook, secret=MASK + secrets.token_hex(4)), hook.secret


def check_mask(now: Webhook | None, before: Webhook | None) -> None:
    """Check that a mask stands for the stored secret. Raises InvalidRequest."""
    if now is not None and now.secret is not None and (before is None or before.secret != now.secret):
        raise InvalidRequest("webhook.secret is a mask of a secret that is not stored here. Send the secret itself.")


async def keep(db: Connection, topic: str, secret: str | None) -> None:
    """Store a topic's secret, in the transaction that has stored its configuration. None keeps the stored secret, or
    deletes it if the configuration has none."""
    await db.execute(_KEEP_SECRET, topic, secret)


async def secret_of(db: Connection, topic: str, topic_id: int) -> str | None:
    secret: str | None = await db.fetchval(_SECRET, topic, topic_id)
    return secret
