"""/admin/topics/{topic}/config: edit settings, review changes before saving, and undo past changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.outages import TOO_SLOW
from app.errors import Forbidden, InvalidRequest, NotFound, TopicNotFound
from app.features.topics import changes
from app.features.topics import config_form as settings
from app.features.topics.config_form import Edit, SettingChange
from app.http.context import Context, context_of
from app.kernel.audit import trail
from app.kernel.audit.trail import Entry
from app.kernel.topics import store, webhooks
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX, Chosen, TopicType
from app.pages.frame import tabs
from app.pages.permissions import CONFIGURE, allows
from app.pages.render import page
from app.pages.session import fields_of

PAST: Final = 20  # past changes per page
SECONDS: Final = 3  # timeout of reading them
_MEANWHILE: Final = "This topic has changed since you opened the form."
_KEPT: Final = "Your edits are kept; other fields show the current values."
_UNSAVED: Final = "Nothing is saved yet."
_ID: Final = re.compile(r"[0-9]{1,18}\Z")
_chosen: Final = msgspec.json.Decoder(Chosen)


class PastChange(msgspec.Struct, frozen=True):
    """A change in the audit trail. `undo`: it can be undone; `own`: the visitor made it."""

    id: int
    at_ms: int
    who: str
    action: str
    changes: list[SettingChange]
    undo: bool
    own: bool


class _StaleFormError(Exception):
    """The topic has changed since the form was rendered."""


async def show(request: Request) -> Response:
    """Show the settings and past changes. Raises InvalidRequest, TopicNotFound, Unavailable."""
    return await _form(request, await _policy(request))


async def review(request: Request) -> Response:
    """Show the changes for confirmation, or the form again if it has errors or the visitor goes back to it."""
    policy, fields = await _policy(request), await fields_of(request)
    was = _was(fields)
    typed = settings.typed_of(was, fields)
    edit = _check(request, policy, was, settings.edit_of(policy.topic.name, was, typed))
    if was != policy.chosen:
        return await _form(request, policy, 409, typed=typed, errors=edit.errors, message=f"{_MEANWHILE} {_KEPT}")
    if edit.errors:
        return await _form(request, policy, 422, typed=typed, errors=edit.errors, message=_UNSAVED)
    if "again" in fields:
        return await _form(request, policy, typed=typed)
    if edit.now == was:
        return await _form(request, policy, message="No changes: all values are as stored.")
    return _difference(request, policy, edit.now, typed)


async def undo(request: Request) -> Response:
    """Show the changes of undoing an audit entry, for confirmation."""
    return await _undoing(request, await _policy(request), request.path_params["entry"])


async def save(request: Request) -> Response:
    """Store the confirmed changes, unless the topic has changed since."""
    policy, fields = await _policy(request), await fields_of(request)
    name, was, entry = policy.topic.name, _was(fields), fields.get("undo", "")
    typed = settings.typed_of(was, fields)
    edit = Edit(await _undone(request, name, entry, was), {}) if entry else settings.edit_of(name, was, typed)
    edit = _check(request, policy, was, edit)
    if edit.errors:
        return await _form(request, policy, 422, typed=typed, errors=edit.errors, message=_UNSAVED)
    try:
        await _store(request, name, was, edit.now)
    except _StaleFormError:
        policy = await _policy(request)
        if entry:
            return await _undoing(request, policy, entry, 409, f"{_MEANWHILE} Review the undo again.")
        return await _form(request, policy, 409, typed=typed, message=f"{_MEANWHILE} {_UNSAVED} {_KEPT}")
    return RedirectResponse(f"/admin/topics/{name}/config?saved=1", 303)


async def _store(request: Request, name: str, was: Chosen, now: Chosen) -> None:
    hook, secret = webhooks.conceal(now.webhook)

    def change(stored: Chosen | None) -> Chosen:
        if stored is None:
            raise TopicNotFound(name)
        if stored != was:
            raise _StaleFormError
        return replace(now, webhook=hook, configured=True)

    await changes.amend(request, name, change, secret=secret)


def _check(request: Request, policy: Policy, was: Chosen, edit: Edit) -> Edit:
    errors, now = dict(edit.errors), edit.now
    try:
        if now.dead_letter != was.dead_letter:
            changes.check_dead_letter(request, now.dead_letter)
    except (InvalidRequest, Forbidden) as error:
        errors["dead_letter"] = error.message
    try:
        if now.webhook != was.webhook:
            hook, secret = changes.check_hook(request, policy.topic.name, now.webhook)
            if secret is None:
                webhooks.check_mask(hook, was.webhook)
    except InvalidRequest as error:
        errors["webhook"] = error.message
    return replace(edit, errors=errors)


async def _form(
    request: Request,
    policy: Policy,
    status: int = 200,
    *,
    typed: Mapping[str, str] | None = None,
    errors: Mapping[str, str] | None = None,
    message: str = "",
) -> Response:
    name, given = policy.topic.name, request.query_params
    may_change = allows(request, CONFIGURE, name)
    past = await _past(request, name, given.get("before", "")) if may_change else []
    latest = past[0] if past and "saved" in given else None
    return page(
        request,
        "config.html",
        status,
        title=f"Config of {name}",
        topic=name,
        tabs=tabs(request, name, is_log=policy.config.type is TopicType.LOG),
        parts=settings.parts(policy, context_of(request).policies.defaults, typed or {}, errors or {}),
        was=_encode(policy),
        may_change=may_change,
        message=message,
        saved=latest if latest and latest.own and latest.undo else None,
        past=None if past is None else past[:PAST],
        older=past[PAST - 1].id if past and len(past) > PAST else None,
        newest="before" not in given,
    )


async def _undoing(request: Request, policy: Policy, entry: str, status: int = 200, message: str = "") -> Response:
    now = await _undone(request, policy.topic.name, entry, policy.chosen)
    if now == policy.chosen:
        return await _form(request, policy, message="This change has no effect any more, so there is nothing to undo.")
    return _difference(request, policy, now, {"undo": entry}, status=status, message=message)


def _difference(
    request: Request,
    policy: Policy,
    now: Chosen,
    fields: Mapping[str, str],
    *,
    status: int = 200,
    message: str = "",
) -> Response:
    name = policy.topic.name
    masked = replace(now, webhook=webhooks.conceal(now.webhook)[0])
    return page(
        request,
        "config_diff.html",
        status,
        title=f"Config of {name}",
        topic=name,
        tabs=tabs(request, name, is_log=policy.config.type is TopicType.LOG),
        changes=settings.differences(policy.chosen, masked, context_of(request).policies.defaults),
        fields={**fields, "was": _encode(policy)},
        undoes="undo" in fields,
        message=message,
    )


async def _policy(request: Request) -> Policy:
    """The stored policy, not a cached one. Raises InvalidRequest, TopicNotFound."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    policy = await store.get(context.pools.rest, name, context.policies.defaults)
    if policy is None:
        raise TopicNotFound(name)
    return policy


async def _past(request: Request, name: str, before: str) -> list[PastChange] | None:
    """Past changes, newest first, up to one more than a page. None if reading took too long."""
    if before and _ID.match(before) is None:
        raise InvalidRequest("before must be the id of an audit entry.")
    context = context_of(request)
    own = context.access.actor(request).id
    try:
        found = await _read(context, name, int(before or BIGINT_MAX), PAST + 1)
    except TOO_SLOW:
        return None
    return [_past_change(one, own) for one in found]


def _past_change(one: Entry, own: str) -> PastChange:
    undo = one.action == "topic.changed" and settings.undo(Chosen(), one.detail) is not None
    return PastChange(
        one.id,
        round(one.at.timestamp() * 1000),
        one.actor_name or one.actor,
        one.action.partition(".")[2],
        settings.changes_in(one.detail),
        undo,
        one.actor == own,
    )


async def _undone(request: Request, name: str, entry: str, was: Chosen) -> Chosen:
    found = await _read(context_of(request), name, int(entry) + 1, 1) if _ID.match(entry) else []
    now = settings.undo(was, found[0].detail) if found and found[0].id == int(entry) else None
    if now is None:
        raise NotFound("Change not found, or it can't be undone.")
    return now


async def _read(context: Context, name: str, before: int, limit: int) -> list[Entry]:
    async with context.pools.rest.acquire() as db, db.transaction(readonly=True):
        await db.execute(f"SET LOCAL statement_timeout = '{SECONDS}s'")
        # "$" matches the whole name instead of a prefix. Names can't contain it.
        return await trail.page(db, before, limit, subject=name, prefixes=[f"{name}$"])


def _encode(policy: Policy) -> str:
    return msgspec.json.encode(policy.chosen).decode()


def _was(fields: Mapping[str, str]) -> Chosen:
    try:
        return _chosen.decode(fields.get("was", ""))
    except msgspec.DecodeError:
        raise InvalidRequest("This form is outdated. Load the page again.") from None
