"""Topics' webhooks: who may have one, and their secrets, which stand apart from every configuration. docs/adr/0041."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.db import sql
from app.base.keys import OWN
from app.errors import Forbidden, InvalidRequest
from app.kernel.topics.webhook import MASK, Webhook, check_url

if TYPE_CHECKING:
    from app.kernel.model import Batch, Connection
    from app.kernel.topics.policy import Policy

_SQL: Final = sql.load_all(__package__)
_KEEP_SECRET = _SQL["keep_secret"]
_SECRET = _SQL["webhook_secret"]


def is_own(topic: str) -> bool:
    """Whether it is one of the service's own topics."""
    return topic.startswith(OWN)


def told(policy: Policy) -> bool:
    """Whether all jobs of a topic are told of, besides those with a webhook of their own."""
    hook = policy.config.webhook
    return hook is not None and hook.url is not None


def check(policy: Policy, batch: Batch, *, signs: bool) -> None:
    """Whether these records may be put into a topic. `signs`: the service has a secret. Raises Forbidden for the
    service's own topics, InvalidRequest for webhooks that nothing could be signed for."""
    if is_own(policy.topic.name):
        raise Forbidden("Nothing is put into the service's own topics.", {"topic": policy.topic.name})
    hook = policy.config.webhook
    if not signs and (hook is None or hook.secret is None):
        raise _unsigned(policy.topic.name)


def check_dead_letter(topic: str | None) -> None:
    """Whether a topic's dead letters may go there: what is put into the service's own would be sent, and signed. Raises
    InvalidRequest."""
    if topic is not None and is_own(topic):
        raise InvalidRequest("The service's own topics take no dead letters.", {"dead_letter": topic})


def check_setting(topic: str, hook: Webhook | None, *, signs: bool) -> None:
    """Whether a topic can have this webhook. Raises InvalidRequest."""
    if hook is not None and hook.url is not None:
        check_url(hook.url, "webhook.url")
        if not signs and hook.secret is None:
            raise _unsigned(topic)


def _unsigned(topic: str) -> InvalidRequest:
    return InvalidRequest(
        "There is nothing to sign with: give the topic's webhook a secret, or set HOLDFAST_WEBHOOK_SECRET.",
        {"topic": topic},
    )


def concealed(hook: Webhook | None) -> tuple[Webhook | None, str | None]:
    """A webhook as it was asked for, with a mask in the place of its secret, and the secret; None: it has none, or a
    mask already."""
    if hook is None or hook.secret is None or hook.secret.startswith(MASK):
        return hook, None
    # Another secret has another mask, so that the trail of changes tells of it.
    return msgspec.structs.replace(hook, secret=MASK + secrets.token_hex(4)), hook.secret


def check_mask(now: Webhook | None, before: Webhook | None) -> None:
    """Whether the mask of a webhook, that came without a secret, stands for one that is kept. Raises InvalidRequest."""
    if now is not None and now.secret is not None and (before is None or before.secret != now.secret):
        raise InvalidRequest("webhook.secret stands for a secret that is not kept here: give the secret itself.")


async def keep(db: Connection, topic: str, secret: str | None) -> None:
    """Keep a topic's secret, in the transaction that has stored its configuration; None: the one that there is, unless
    the configuration has none."""
    await db.execute(_KEEP_SECRET, topic, secret)


async def secret_of(db: Connection, topic: str, topic_id: int) -> str | None:
    """The secret of a topic's webhook."""
    secret: str | None = await db.fetchval(_SECRET, topic, topic_id)
    return secret
