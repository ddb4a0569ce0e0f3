"""The context that handlers receive with the payload."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

from holdfast._decode import moment
from holdfast._resources.topic import Topic
from holdfast._resources.users import Users
from holdfast._transport import AsyncSender, SyncSender
from holdfast._verbs import Resource, S, verb
from holdfast._wire import Reply, Request
from holdfast._worker.payloads import Encoder, plain, sent

Why = Literal["timeout", "cancelled", "lost", "stopping"]


class Signal:
    """Tells a handler to stop, and why: timeout, cancelled, lost (its lease), or stopping (the worker). An async
    handler is cancelled as well."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason: Why | None = None

    def set(self, reason: Why) -> None:
        """Set the signal. The first reason stays."""
        self.reason = self.reason or reason
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Block this thread until the signal is set, for at most `seconds`. Returns whether it is set."""
        return self._event.wait(seconds)


class Target(Resource[S]):
    """A topic to push jobs to."""

    def __init__(
        self,
        sender: S,
        topic: str,
        encode: Encoder | None = None,
        *,
        user_id: str | None = None,
        group: str | None = None,
        dedupe: str | None = None,
    ) -> None:
        super().__init__(sender)
        self.topic = topic
        self._encode = encode
        self._fields = {"user_id": user_id, "group": group, "dedupe_id": dedupe}

    def group(self, id: str) -> Target[S]:
        """The same topic, for jobs of this group, which run one after another."""
        return self._with("group", id)

    def dedupe(self, id: str) -> Target[S]:
        """The same topic, with a dedupe id: further jobs with this id within the topic's dedupe window are dropped."""
        return self._with("dedupe_id", id)

    @verb
    def push(
        self,
        payload: Any,
        *,
        delay_ms: int | None = None,
        run_at: datetime | None = None,
        priority: int | None = None,
        key: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        ttl_ms: int | None = None,
        meta: Mapping[str, Any] | None = None,
        content_type: str | None = None,
    ) -> Request[str]:
        """Enqueue a job. Returns its id. Objects are sent as JSON, or as MessagePack with the `content_type`
        application/msgpack; str is sent as text, bytes as bytes. Raises TopicNotFound if the topic does not exist, and
        InvalidRequest without a group in a topic that ends in .fifo."""
        more = {
            **{"delay_ms": delay_ms, "run_at": run_at, "priority": priority, "key": key, "tag": tag},
            **{"tenant": tenant, "ttl_ms": ttl_ms, "meta": meta, "content_type": content_type},
        }
        topic = Topic(self._sender, self.topic)
        request = Topic.enqueue(topic, sent(payload, content_type, self._encode), **more, **self._fields)

        def read_id(reply: Reply) -> str:
            return str(request.read(reply).seq)

        return request.read_by(read_id)

    def _with(self, field: str, value: str) -> Target[S]:
        target = Target(self._sender, self.topic, self._encode)
        target._fields = {**self._fields, field: value}
        return target


class Context(Resource[S]):
    """A handler's view of its job."""

    def __init__(self, sender: S, queue_name: str, body: Mapping[str, Any], encode: Encoder | None = None) -> None:
        super().__init__(sender)
        self.queue_name = queue_name
        self.signal = Signal()
        self._body = body
        self._encode = encode

    @property
    def job_id(self) -> str:
        return str(self._body["$seq"])

    @property
    def group_id(self) -> str | None:
        return self._body.get("group")

    @property
    def sequence_number(self) -> int:
        """The job's seq, which ascends within a group."""
        return int(self._body["$seq"])

    @property
    def received_count(self) -> int:
        """How often the job was delivered, including this time."""
        return int(self._body["deliveries"])

    @property
    def queued_at(self) -> datetime:
        """When the job was enqueued, by the database's clock."""
        return moment(self._body["$ts"])

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._body.get("meta") or {}

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the HTTP request that enqueued the job. docs/webhooks.md."""
        return self.meta.get("params") or {}

    @property
    def user_id(self) -> str | None:
        """The application's user that the job is for. Jobs pushed from this context are for the same user."""
        return self.meta.get("$user_id")

    @property
    def token(self) -> str:
        """The lease's token, for holdfast.assert_lease and holdfast.complete in SQL."""
        return str(self._body["token"])

    def get(self, topic: str) -> Target[S]:
        """A topic to push jobs to."""
        return Target(self._sender, topic, self._encode, user_id=self.user_id)

    def self(self) -> Target[S]:
        """The topic that this job came from."""
        return self.get(self.queue_name)

    @verb
    def push(self, topic: str, payload: Any, *, group: str | None = None) -> Request[str]:
        """Enqueue a job in a topic, for the same user. Returns its id. `get(topic).push` has more options."""
        target = Target(self._sender, topic, self._encode, user_id=self.user_id, group=group)
        return Target.push(target, payload)

    @verb
    def send(self, event: str, data: Any = None) -> Request[int]:
        """Send an event, such as progress, to the job's user. Returns the event's id. Raises ValueError if the job has
        no user. docs/webhooks.md."""
        if self.user_id is None:
            raise ValueError("this job has no user: pass user_id to its enqueue")
        return Users.send(Users(self._sender), self.user_id, event, plain(data, self._encode))


AsyncContext: TypeAlias = Context[AsyncSender]
SyncContext: TypeAlias = Context[SyncSender]
