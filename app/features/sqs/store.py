"""A queue of SQS is a topic. Its attributes and tags that topics don't have are stored here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from app.base.db import sql
from app.features.sqs.faults import SqsFault, bad_value, invalid, invalid_attribute
from app.kernel.engine import Core
from app.kernel.topics.settings import Chosen, Durability, Exhaustion, TopicType

if TYPE_CHECKING:
    from app.kernel.engine import Engine
    from app.kernel.model import Connection
    from app.kernel.topics.policy import Policy

_SQL: Final = sql.load_all(__package__)
FIFO: Final = ".fifo"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}\Z")
MOST_OF_NAME: Final = 80
KIB: Final = 1024

Attributes = dict[str, str]


class Extras(msgspec.Struct, frozen=True):
    """A queue's tags, and its attributes that topics don't have."""

    attributes: Attributes = {}
    tags: Attributes = {}
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def seconds(self, name: str) -> int:
        """The value of an attribute that is a number."""
        return int(self.attributes.get(name, DEFAULTS[name]))

    def is_set(self, name: str) -> bool:
        """The value of an attribute that is true or false."""
        return self.attributes.get(name, DEFAULTS.get(name)) == "true"


# Numbers: least, most. Those of the first three are settings of the topic.
NUMBERS: Final = {
    "VisibilityTimeout": (0, 43_200),
    "MessageRetentionPeriod": (60, 1_209_600),
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (KIB, KIB * KIB),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}
FLAGS: Final = {"FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled"}
CHOICES: Final = {
    "DeduplicationScope": {"messageGroup", "queue"},
    "FifoThroughputLimit": {"perQueue", "perMessageGroupId"},
}
ONLY_FIFO: Final = {"ContentBasedDeduplication", *CHOICES}
TEXTS: Final = {"Policy", "KmsMasterKeyId", "RedrivePolicy", "RedriveAllowPolicy"}
COUNTED: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
READ_ONLY: Final = {*COUNTED, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}
KNOWN: Final = {*NUMBERS, *FLAGS, *CHOICES, *TEXTS, *READ_ONLY}
DEFAULTS: Final = {
    "VisibilityTimeout": "30",
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "MaximumMessageSize": str(NUMBERS["MaximumMessageSize"][1]),
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
}
# These are settings of the topic.
OF_TOPIC: Final = {"VisibilityTimeout", "MessageRetentionPeriod", "RedrivePolicy"}


class RedrivePolicy(msgspec.Struct, rename="camel", frozen=True):
    """The dead-letter queue, and after how many receives a message goes there."""

    dead_letter_target_arn: str
    max_receive_count: int


def check_name(name: str) -> str:
    """A queue's name. Raises SqsFault."""
    plain = name.removesuffix(FIFO) if len(name) <= MOST_OF_NAME else name
    if _NAME.match(plain) is None:
        raise invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
    return name


def check(name: str, asked: Mapping[str, str], *, beyond: bool) -> Attributes:
    """Check the attributes for a queue. `beyond` allows values that AWS refuses. Raises SqsFault."""
    fifo = name.endswith(FIFO)
    asked = {attribute.strip(): value for attribute, value in asked.items()}
    for attribute, value in asked.items():
        if attribute not in KNOWN or attribute in READ_ONLY:
            raise invalid_attribute(attribute)
        if attribute in ONLY_FIFO and not fifo:
            raise SqsFault("InvalidAttributeName", f"Unknown Attribute {attribute}.")
        if attribute in NUMBERS:
            least, most = NUMBERS[attribute]
            if (
                not value.isdigit()
                or int(value) < least
                or (int(value) > most and not (beyond and attribute != "VisibilityTimeout"))
            ):
                raise invalid_attribute(attribute, value)
        elif (attribute in FLAGS and value not in {"true", "false"}) or (
            attribute in CHOICES and value not in CHOICES[attribute]
        ):
            raise invalid_attribute(attribute, value)
    if (asked.get("FifoQueue", "false") == "true") != fifo and "FifoQueue" in asked:
        raise invalid(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with "
            ".fifo suffix and be 1 to 80 in length."
        )
    if asked.get("FifoThroughputLimit") == "perMessageGroupId" and asked.get("DeduplicationScope") == "queue":
        raise invalid_attribute("FifoThroughputLimit", asked["FifoThroughputLimit"])
    return dict(asked)


def redrive_of(text: str) -> RedrivePolicy | None:
    """A redrive policy; None for an empty one. Raises SqsFault."""
    if not text:
        return None
    try:
        policy = msgspec.json.decode(text, type=RedrivePolicy, strict=False)
    except msgspec.DecodeError:
        reason = "Redrive policy does not contain mandatory attributes: deadLetterTargetArn and maxReceiveCount."
        raise bad_value(text, "RedrivePolicy", reason) from None
    if not 1 <= policy.max_receive_count <= 1_000:
        reason = (
            f"Invalid value for maxReceiveCount: {policy.max_receive_count}, valid values are from 1 to 1000 both "
            "inclusive."
        )
        raise bad_value(text, "RedrivePolicy", reason)
    return policy


def chosen_of(was: Chosen | None, asked: Mapping[str, str], dead_letter: str | None) -> Chosen:
    """A topic's settings with these attributes. `dead_letter`: the topic that the redrive policy names."""
    chosen = was or Chosen(
        type=TopicType.QUEUE,
        durability=Durability.FSYNC,
        ttl_ms=int(DEFAULTS["MessageRetentionPeriod"]) * 1000,
        lease_ms=30_000,
        max_deliveries=0,
    )
    changes: dict[str, Any] = {"configured": True}
    if "VisibilityTimeout" in asked:
        changes["lease_ms"] = max(int(asked["VisibilityTimeout"]) * 1000, 100)
    if "MessageRetentionPeriod" in asked:
        changes["ttl_ms"] = int(asked["MessageRetentionPeriod"]) * 1000
    if "RedrivePolicy" in asked:
        policy = redrive_of(asked["RedrivePolicy"])
        if policy is None:
            changes |= {"max_deliveries": 0, "on_exhausted": Exhaustion.REDELIVER, "dead_letter": None}
        else:
            changes |= {
                "max_deliveries": policy.max_receive_count,
                "on_exhausted": Exhaustion.DEAD_LETTER,
                "dead_letter": dead_letter,
            }
    return msgspec.structs.replace(chosen, **changes)


class Queues(Core):
    """Extras of queues, cached as long as the policies of their topics."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._known: dict[int, tuple[Policy, Extras]] = {}

    async def extras(self, policy: Policy) -> Extras:
        """The extras of a queue, from the cache or the database."""
        known = self._known.get(policy.topic.id)
        if known is not None and known[0] is policy:
            return known[1]
        extras = await read(self._engine.pools.rest, policy.topic.id)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[policy.topic.id] = policy, extras
        return extras

    def forget(self, topic_id: int) -> None:
        """Drop a queue from the cache."""
        self._known.pop(topic_id, None)


MOST_KNOWN: Final = 10_000


async def read(db: Connection, topic_id: int) -> Extras:
    """Read the extras of a queue from the database."""
    row = await db.fetchrow(_SQL["get"], topic_id)
    if row is None:
        return Extras()
    attributes, tags = (msgspec.json.decode(row[name], type=Attributes) for name in ("attributes", "tags"))
    return Extras(attributes, tags, row["created_at"], row["updated_at"])


async def write(db: Connection, topic_id: int, attributes: Attributes, tags: Attributes) -> None:
    """Store the extras of a queue."""
    texts = (msgspec.json.encode(one).decode() for one in (attributes, tags))
    await db.execute(_SQL["put"], topic_id, *texts)


async def note_purge(db: Connection, name: str, topic_id: int) -> None:
    """Raises SqsFault within a minute of the last one."""
    if not await db.fetchval(_SQL["purge"], topic_id):
        raise SqsFault("PurgeQueueInProgress", f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.")


async def sources(db: Connection, topic: str, after: str, limit: int, allowed: list[str]) -> list[str]:
    """Names of queues whose dead letters go to a topic, by name."""
    return [row["name"] for row in await db.fetch(_SQL["sources"], topic, after, limit, allowed)]


async def first_claims(db: Connection, topic_id: int, seqs: Sequence[int]) -> dict[int, int]:
    """When jobs were claimed first, in ms since 1970, by seq."""
    return {row["seq"]: row["at_ms"] for row in await db.fetch(_SQL["first_claims"], topic_id, list(seqs))}


def name_of_arn(arn: str) -> str:
    """The queue that an ARN names. Raises SqsFault."""
    parts = arn.split(":")
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sqs":
        raise invalid(f"{arn[:200]!r} is no ARN of a queue.")
    return parts[5]


def epoch(at: datetime | None) -> str:
    """A time in seconds since 1970."""
    return str(int((at or datetime.fromtimestamp(0, UTC)).timestamp()))
