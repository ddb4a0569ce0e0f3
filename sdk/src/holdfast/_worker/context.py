"""What a handler is given beside the payload."""

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
    """Says that a job is not to go on, and why: its time is over, it was cancelled, its lease was lost, or the worker
    stops. An async handler is cancelled as well."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason: Why | None = None

    def set(self, reason: Why) -> None:
        """The first reason stays."""
        self.reason = self.reason or reason
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait in a thread until it is set, so many seconds at most; whether it is."""
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
        """The same topic, for jobs of this group: one runs after another."""
        return self._with("group", id)

    def dedupe(self, id: str) -> Target[S]:
        """The same topic, for one job: a second one of this id within the topic's dedupe window is dropped."""
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
        """Put a job in; its id. Objects are JSON, or what `content_type` says, application/msgpack; str is text, bytes
        are bytes. A topic that is not there is a TopicNotFound, one that ends in .fifo without a group an
        InvalidRequest."""
        more = {
            **{"delay_ms": delay_ms, "run_at": run_at, "priority": priority, "key": key, "tag": tag},
            **{"tenant": tenant, "ttl_ms": ttl_ms, "meta": meta, "content_type": content_type},
        }
        topic = Topic(self._sender, self.topic)
        request = Topic.enqueue(topic, sent(payload, content_type, self._encode), **more, **self._fields)

        def pushed(reply: Reply) -> str:
            return str(request.read(reply).seq)

        return request.read_by(pushed)

    def _with(self, field: str, value: str) -> Target[S]:
        target = Target(self._sender, self.topic, self._encode)
        target._fields = {**self._fields, field: value}
        return target


class Context(Resource[S]):
    """A job, as its handler sees it."""

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
        """Ascends within a group."""
        return int(self._body["$seq"])

    @property
    def received_count(self) -> int:
        """How often it was handed out, with this time."""
        return int(self._body["deliveries"])

    @property
    def queued_at(self) -> datetime:
        """By the database's clock."""
        return moment(self._body["$ts"])

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._body.get("meta") or {}

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the HTTP request that it came by. docs/webhooks.md."""
        return self.meta.get("params") or {}

    @property
    def user_id(self) -> str | None:
        """For whom of the application's users it is. What is pushed from here is for the same one."""
        return self.meta.get("$user_id")

    @property
    def token(self) -> str:
        """The lease, for holdfast.assert_lease and holdfast.complete in SQL."""
        return str(self._body["token"])

    def get(self, topic: str) -> Target[S]:
        """Another topic, to push to."""
        return Target(self._sender, topic, self._encode, user_id=self.user_id)

    def self(self) -> Target[S]:
        """The topic that this job came from."""
        return self.get(self.queue_name)

    @verb
    def push(self, topic: str, payload: Any, *, group: str | None = None) -> Request[str]:
        """Put a job into a topic, for the same user; its id. `get(topic).push` has more to say."""
        target = Target(self._sender, topic, self._encode, user_id=self.user_id, group=group)
        return Target.push(target, payload)

    @verb
    def send(self, event: str, data: Any = None) -> Request[int]:
        """Tell the user whose job it is something, as a progress; the event's id. Raises ValueError where it is
        nobody's. docs/webhooks.md."""
        if self.user_id is None:
            raise ValueError("this job is no user's: give its enqueue a user_id")
        return Users.send(Users(self._sender), self.user_id, event, plain(data, self._encode))


AsyncContext: TypeAlias = Context[AsyncSender]
SyncContext: TypeAlias = Context[SyncSender]
