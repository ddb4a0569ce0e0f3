"""Actions on queues: create, describe, change, list, tag, purge and delete. Permissions are only stored."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from app.base.keys import Scope
from app.features.jobs import requests
from app.features.sqs import labels, store
from app.features.sqs.calls import Answer, OfQueue, SqsCall, write_extras
from app.features.sqs.faults import SqsFault, bad_value, invalid, invalid_attribute, missing, no_queue
from app.features.sqs.store import COUNTED, DEFAULTS, FIFO, KNOWN, OF_TOPIC, Attributes, Extras, Queues, RedrivePolicy
from app.features.topics.changes import amend, check_dead_letter
from app.kernel.jobs import Status
from app.kernel.purges import Purges
from app.kernel.topics import store as topics
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import Chosen, Exhaustion, TopicType

MOST_LISTED: Final = 1_000
_LIVE: Final = (Status.PENDING, Status.PROCESSING)


class QueueByName(msgspec.Struct, rename="pascal"):
    queue_name: str


class CreateQueue(QueueByName):
    attributes: Attributes = {}
    tags: Attributes = {}
    small_tags: Attributes = msgspec.field(name="tags", default_factory=dict)


class GetQueueAttributes(OfQueue):
    attribute_names: list[str] = msgspec.field(default_factory=list)


class SetQueueAttributes(OfQueue, kw_only=True):
    attributes: Attributes


class ListQueues(msgspec.Struct, rename="pascal"):
    queue_name_prefix: str = ""
    next_token: str | None = None
    max_results: int | None = None


class ListSources(OfQueue):
    next_token: str | None = None
    max_results: int | None = None


async def create(call: SqsCall) -> Answer:
    """CreateQueue."""
    asked = call.fields(CreateQueue)
    name = store.check_name(asked.queue_name)
    call.let_in(Scope.ADMIN, name)
    tags = labels.check_tags(name, {**asked.tags, **asked.small_tags})
    attributes = store.check(name, asked.attributes, beyond=call.context.settings.sqs_beyond)
    if name.endswith(FIFO) and attributes.get("FifoQueue") != "true":
        raise invalid("The queue name ends in .fifo, so its attribute FifoQueue must be true.")
    dead_letter = await _dead_letter(call, name, attributes)
    chosen = store.chosen_of(None, attributes, dead_letter)
    actor, db = call.context.access.actor(call.request), call.context.pools.rest
    created = await topics.create(db, name, chosen, actor)
    policy = await call.queue(name)
    if created:
        call.context.policies.announce(name)
        policy = await call.queue(name)
        await store.write(db, policy.topic.id, _own(attributes), tags)
        call.context.core(Queues).forget(policy.topic.id)
        call.context.policies.announce(name)
        return {"QueueUrl": call.url(name)}
    there = _settings(call, policy, await store.read(db, policy.topic.id))
    for attribute, value in attributes.items():
        if there.get(attribute, "") != value and not _same(attribute, there.get(attribute, ""), value):
            raise SqsFault(
                "QueueNameExists",
                f"A queue already exists with the same name and a different value for attribute {attribute}",
            )
    return {"QueueUrl": call.url(name)}


def _same(attribute: str, one: str, other: str) -> bool:
    """Whether two values mean the same: policies are JSON."""
    if attribute not in {"RedrivePolicy", "RedriveAllowPolicy", "Policy"}:
        return False
    try:
        return (
            bool(store.redrive_of(one) == store.redrive_of(other))
            if attribute == "RedrivePolicy"
            else bool(msgspec.json.decode(one) == msgspec.json.decode(other))
        )
    except (msgspec.DecodeError, SqsFault):
        return False


def _own(attributes: Attributes) -> Attributes:
    """The attributes to store beside the topic's settings. An empty value removes an attribute. Two settings of the
    topic are stored as well: a timeout of 0, which topics can't have, and the redrive policy as it was written."""
    return {
        name: value
        for name, value in attributes.items()
        if value and (name not in OF_TOPIC or name == "RedrivePolicy" or (name, value) == ("VisibilityTimeout", "0"))
    }


async def _dead_letter(call: SqsCall, name: str, attributes: Attributes) -> str | None:
    """The topic that a redrive policy names, which must be there and allow it. Raises SqsFault."""
    text = attributes.get("RedrivePolicy", "")
    policy = store.redrive_of(text)
    if policy is None:
        return None
    wrong = f"Value {text[:200]} for parameter RedrivePolicy is invalid. Reason: "
    try:
        dead_letter = store.name_of_arn(policy.dead_letter_target_arn)
        target = await call.queue(dead_letter)
    except SqsFault:
        raise invalid(f"{wrong}Dead letter target does not exist.") from None
    if dead_letter == name or dead_letter.endswith(FIFO) != name.endswith(FIFO):
        raise invalid(f"{wrong}Dead-letter queue must be same type of queue as the source, and another one.")
    allow = (await call.extras(target)).attributes.get("RedriveAllowPolicy")
    if allow and not _allows(allow, call.arn(name)):
        raise invalid(f"{wrong}The dead-letter queue's RedriveAllowPolicy does not allow this queue.")
    check_dead_letter(call.request, dead_letter)
    return dead_letter


def _allows(text: str, source: str) -> bool:
    try:
        allow = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return True
    how = allow.get("redrivePermission", "allowAll")
    return how == "allowAll" or (how == "byQueue" and source in allow.get("sourceQueueArns", []))


def _settings(call: SqsCall, policy: Policy, extras: Extras) -> Attributes:
    """The attributes of a queue that can be set."""
    config = policy.config
    settings = {
        "VisibilityTimeout": str(config.lease_ms // 1000),
        "MaximumMessageSize": DEFAULTS["MaximumMessageSize"],
        "MessageRetentionPeriod": str(config.ttl_ms // 1000),
        "DelaySeconds": DEFAULTS["DelaySeconds"],
        "ReceiveMessageWaitTimeSeconds": DEFAULTS["ReceiveMessageWaitTimeSeconds"],
    }
    if policy.topic.name.endswith(FIFO):
        settings |= {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DeduplicationScope": "queue",
            "FifoThroughputLimit": "perQueue",
        }
    settings |= extras.attributes
    if "KmsMasterKeyId" not in settings:
        settings.setdefault("SqsManagedSseEnabled", DEFAULTS["SqsManagedSseEnabled"])
    else:
        settings.setdefault("KmsDataKeyReusePeriodSeconds", "300")
        settings.setdefault("SqsManagedSseEnabled", "false")
    text = settings.pop("RedrivePolicy", "")
    if config.on_exhausted is Exhaustion.DEAD_LETTER and config.dead_letter is not None and config.max_deliveries:
        redrive = RedrivePolicy(call.arn(config.dead_letter), config.max_deliveries)
        # As it was written, unless the topic was changed since or its number is a text.
        stands = bool(text) and store.redrive_of(text) == redrive and f'"{config.max_deliveries}"' not in text
        settings["RedrivePolicy"] = text if stands else msgspec.json.encode(redrive).decode()
    return settings


async def get_attributes(call: SqsCall) -> Answer:
    """GetQueueAttributes."""
    asked = call.fields(GetQueueAttributes)
    name = call.name(asked.queue_url)
    call.let_in(Scope.READ, name)
    policy = await call.queue(name)
    for attribute in asked.attribute_names:
        if attribute != "All" and attribute not in KNOWN:
            raise invalid_attribute(attribute)
    extras = await call.extras(policy)
    found = _settings(call, policy, extras)
    found |= {
        "QueueArn": call.arn(name),
        "CreatedTimestamp": store.epoch(extras.created_at),
        "LastModifiedTimestamp": store.epoch(extras.updated_at),
    }
    wanted = set(asked.attribute_names)
    if "All" in wanted or wanted.intersection(COUNTED):
        counts = await call.context.engine.counters.read(policy)
        found |= {
            "ApproximateNumberOfMessages": str(counts.ready + counts.blocked),
            "ApproximateNumberOfMessagesNotVisible": str(counts.in_flight),
            "ApproximateNumberOfMessagesDelayed": str(counts.scheduled),
        }
    if "All" not in wanted:
        found = {attribute: value for attribute, value in found.items() if attribute in wanted}
    return {"Attributes": found} if found else {}


async def set_attributes(call: SqsCall) -> Answer:
    """SetQueueAttributes."""
    asked = call.fields(SetQueueAttributes)
    name = call.name(asked.queue_url)
    call.let_in(Scope.ADMIN, name)
    policy = await call.queue(name)
    if not asked.attributes:
        raise missing("Attributes")
    if "FifoQueue" in asked.attributes:
        raise invalid_attribute("FifoQueue")
    attributes = store.check(name, asked.attributes, beyond=call.context.settings.sqs_beyond)
    dead_letter = await _dead_letter(call, name, attributes)

    def change(was: Chosen | None) -> Chosen | None:
        return None if was is None else store.chosen_of(was, attributes, dead_letter)

    if await amend(call.request, name, change) is None:
        raise no_queue()
    extras = await store.read(call.context.pools.rest, policy.topic.id)
    kept = {key: value for key, value in extras.attributes.items() if key not in attributes}
    await write_extras(call, policy, {**kept, **_own(attributes)}, extras.tags)
    return {}


async def get_url(call: SqsCall) -> Answer:
    """GetQueueUrl."""
    asked = call.fields(QueueByName)
    store.check_name(asked.queue_name)
    call.let_in(Scope(0), asked.queue_name, confines=True)
    await call.queue(asked.queue_name)
    return {"QueueUrl": call.url(asked.queue_name)}


async def list_queues(call: SqsCall) -> Answer:
    """ListQueues."""
    asked = call.fields(ListQueues)
    allowed = call.context.access.prefixes(call.request, Scope.READ)
    after, limit = _after(asked.next_token), _limit(asked.max_results)
    found: list[str] = []
    more = True
    while more and len(found) <= limit:
        page = await topics.page(
            call.context.pools.rest, asked.queue_name_prefix, after, MOST_LISTED,
            defaults=call.context.policies.defaults, allowed=allowed,
        )  # fmt: skip
        found += [one.topic.name for one in page if one.config.type is TopicType.QUEUE and _is_name(one.topic.name)]
        more = len(page) == MOST_LISTED
        after = page[-1].topic.name if page else ""
    answer: Answer = {"QueueUrls": [call.url(name) for name in found[:limit]]} if found else {}
    if asked.max_results is not None and len(found) > limit:
        answer["NextToken"] = _token(found[limit - 1])
    return answer


def _is_name(name: str) -> bool:
    try:
        store.check_name(name)
    except SqsFault:
        return False
    return True


def _limit(most: int | None) -> int:
    if most is not None and not 1 <= most <= MOST_LISTED:
        raise bad_value(most, "MaxResults", f"MaxResults must be an integer between 1 and {MOST_LISTED}.")
    return most or MOST_LISTED


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _after(token: str | None) -> str:
    try:
        return "" if token is None else base64.b64decode(token, b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise invalid("Invalid or expired next token.") from None


async def list_sources(call: SqsCall) -> Answer:
    """ListDeadLetterSourceQueues."""
    asked = call.fields(ListSources)
    name = call.name(asked.queue_url)
    call.let_in(Scope.READ, name)
    await call.queue(name)
    limit, allowed = _limit(asked.max_results), list(call.context.access.prefixes(call.request, Scope.READ))
    found = await store.sources(call.context.pools.rest, name, _after(asked.next_token), limit + 1, allowed)
    answer: Answer = {"queueUrls": [call.url(one) for one in found[:limit]]}
    if asked.max_results is not None and len(found) > limit:
        answer["NextToken"] = _token(found[limit - 1])
    return answer


async def delete(call: SqsCall) -> Answer:
    """DeleteQueue."""
    name = call.name(call.fields(OfQueue).queue_url)
    call.let_in(Scope.DELETE, name)
    policy = await call.queue(name)
    actor = call.context.access.actor(call.request)
    await call.context.core(Purges).delete_topic(policy, if_empty=False, by=actor)
    return {}


async def purge(call: SqsCall) -> Answer:
    """PurgeQueue: deletes all messages, those in flight too."""
    name = call.name(call.fields(OfQueue).queue_url)
    call.let_in(Scope.DELETE, name)
    policy = await call.queue(name)
    await store.note_purge(call.context.pools.rest, name, policy.topic.id)
    await requests.purge(call.request, policy, _LIVE)
    return {}
