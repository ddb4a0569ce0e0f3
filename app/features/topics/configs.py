"""Changing what is chosen for a topic, for whichever edge it comes by. docs/semantics.md, section 24."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request

from app.http.context import context_of
from app.kernel.topics import hooks, store
from app.kernel.topics.settings import Chosen
from app.kernel.topics.webhook import Webhook


def check_hook(request: Request, topic: str, hook: Webhook | None) -> tuple[Webhook | None, str | None]:
    """A webhook that the topic can have, with a mask in the place of its secret, and the secret; see hooks.concealed.

    Raises InvalidRequest.
    """
    hooks.check_setting(topic, hook, signs=context_of(request).settings.webhook_secret is not None)
    return hooks.concealed(hook)


def check_dead_letter(request: Request, dead_letter: str | None) -> None:
    """Whether dead letters may be sent there by who asks. Raises InvalidRequest, Unauthorized, Forbidden."""
    hooks.check_dead_letter(dead_letter)
    if dead_letter is not None:
        context_of(request).access.may_name(request, dead_letter)


async def amend(
    request: Request, topic: str, change: Callable[[Chosen | None], Chosen | None], *, secret: str | None = None
) -> Chosen | None:
    """As store.amend, by who asks, and known to every process. Who asks was let do that."""
    context = context_of(request)
    chosen = await store.amend(context.pools.rest, topic, change, context.access.actor(request), secret=secret)
    if chosen is not None:
        context.policies.changed(topic)
    return chosen
