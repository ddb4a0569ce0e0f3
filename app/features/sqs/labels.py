"""Tags, and permissions, which are written into the attribute Policy: stored and shown, but keys decide who may do
what."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from app.base.keys import Scope
from app.features.sqs import store
from app.features.sqs.calls import Answer, OfQueue, SqsCall, write_extras
from app.features.sqs.faults import SqsFault, bad_value, invalid, missing
from app.features.sqs.store import Attributes, Extras
from app.kernel.topics.policy import Policy

MOST_TAGS: Final = 50
MOST_ACTIONS: Final = 7  # of a permission
# What AddPermission can name.
ACTIONS: Final = {
    *("*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes"),
    *("GetQueueUrl", "ListDeadLetterSourceQueues", "PurgeQueue"),
}


class TagQueue(OfQueue, kw_only=True):
    tags: Attributes


class UntagQueue(OfQueue, kw_only=True):
    tag_keys: list[str]


class AddPermission(OfQueue, kw_only=True):
    label: str
    a_w_s_account_ids: list[str] = msgspec.field(name="AWSAccountIds", default_factory=list)
    actions: list[str] = msgspec.field(default_factory=list)


class RemovePermission(OfQueue, kw_only=True):
    label: str


async def tag(call: SqsCall) -> Answer:
    """TagQueue."""
    asked = call.fields(TagQueue)
    policy, extras = await _to_change(call, asked.queue_url)
    if not asked.tags:
        raise missing("Tags")
    await write_extras(call, policy, extras.attributes, check_tags(policy.topic.name, {**extras.tags, **asked.tags}))
    return {}


async def untag(call: SqsCall) -> Answer:
    """UntagQueue."""
    asked = call.fields(UntagQueue)
    policy, extras = await _to_change(call, asked.queue_url)
    if not asked.tag_keys:
        raise invalid("Tag keys must be between 1 and 128 characters in length.")
    tags = {key: value for key, value in extras.tags.items() if key not in asked.tag_keys}
    await write_extras(call, policy, extras.attributes, tags)
    return {}


async def list_tags(call: SqsCall) -> Answer:
    """ListQueueTags."""
    name = call.name(call.fields(OfQueue).queue_url)
    call.let_in(Scope.READ, name)
    extras = await call.extras(await call.queue(name))
    return {"Tags": extras.tags} if extras.tags else {}


async def _to_change(call: SqsCall, url: str | None) -> tuple[Policy, Extras]:
    """Check that the caller may change a queue. Returns the queue with its stored attributes and tags."""
    name = call.name(url)
    call.let_in(Scope.ADMIN, name)
    policy = await call.queue(name)
    return policy, await store.read(call.context.pools.rest, policy.topic.id)


def check_tags(name: str, tags: Attributes) -> Attributes:
    """Check the tags of a queue. Raises SqsFault."""
    if len(tags) > MOST_TAGS:
        raise invalid(f"Too many tags added for queue {name}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or len(value) > 256 or "\0" in key + value:
            raise invalid("Tag keys must be between 1 and 128 characters in length, values 256 at most.")
    return tags


async def add_permission(call: SqsCall) -> Answer:
    """AddPermission: written into the attribute Policy, which is stored and shown. Keys decide who may do what."""
    asked = call.fields(AddPermission)
    policy, extras = await _to_change(call, asked.queue_url)
    if not asked.actions:
        raise missing("Actions")
    if not asked.a_w_s_account_ids:
        raise invalid("Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.")
    if len(asked.actions) > MOST_ACTIONS:
        raise SqsFault("OverLimit", f"{len(asked.actions)} Actions were found, maximum allowed is {MOST_ACTIONS}.", 403)
    unknown = [one for one in asked.actions if one not in ACTIONS]
    if unknown:
        reason = "Only the queue owner is allowed to invoke this action."
        raise bad_value(f"SQS:{unknown[0]}", "ActionName", reason)
    document = _document(call, policy, extras)
    if any(one["Sid"] == asked.label for one in document["Statement"]):
        raise bad_value(asked.label, "Label", "Already exists.")
    who = [f"arn:aws:iam::{account}:root" for account in asked.a_w_s_account_ids]
    what = [f"SQS:{action}" for action in asked.actions]
    document["Statement"].append(
        {
            "Sid": asked.label,
            "Effect": "Allow",
            "Principal": {"AWS": who if len(who) > 1 else who[0]},
            "Action": what if len(what) > 1 else what[0],
            "Resource": call.arn(policy.topic.name),
        }
    )
    await write_extras(
        call, policy, {**extras.attributes, "Policy": msgspec.json.encode(document).decode()}, extras.tags
    )
    return {}


async def remove_permission(call: SqsCall) -> Answer:
    """RemovePermission."""
    asked = call.fields(RemovePermission)
    policy, extras = await _to_change(call, asked.queue_url)
    document = _document(call, policy, extras)
    left = [one for one in document["Statement"] if one["Sid"] != asked.label]
    if len(left) == len(document["Statement"]):
        raise bad_value(asked.label, "Label", "can't find label on existing policy.")
    kept = {key: value for key, value in extras.attributes.items() if key != "Policy"}
    if left:
        kept["Policy"] = msgspec.json.encode({**document, "Statement": left}).decode()
    await write_extras(call, policy, kept, extras.tags)
    return {}


def _document(call: SqsCall, policy: Policy, extras: Extras) -> dict[str, Any]:
    text = extras.attributes.get("Policy")
    try:
        document = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError:
        document = {}
    statements = document.get("Statement", [])
    statements = [one for one in statements if isinstance(one, dict)] if isinstance(statements, list) else []
    return {
        "Version": "2012-10-17",
        "Id": f"{call.arn(policy.topic.name)}/SQSDefaultPolicy",
        **document,
        "Statement": [{"Sid": "", **one} for one in statements],
    }
