"""Calls that write, read and delete records without claiming them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast import _trace, models
from holdfast._body import records_of
from holdfast._decode import read
from holdfast._objects import Upload
from holdfast._resources.settings import NamedTopic, settings_of
from holdfast._verbs import S, verb
from holdfast._wire import ALL_MS, Reply, Request, T, encode, reads, without_none


class TopicRecords(NamedTopic[S]):
    """Calls on a topic's records."""

    @verb
    def enqueue(
        self,
        data: Any,
        *,
        tag: str | None = None,
        meta: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay_ms: int | None = None,
        run_at: datetime | None = None,
        ttl_ms: int | None = None,
        max_deliveries: int | None = None,
        key: str | None = None,
        content_type: str | None = None,
        group: str | None = None,
        dedupe_id: str | None = None,
        user_id: str | None = None,
        tenant: str | None = None,
        webhook: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> Request[models.Enqueued]:
        """Enqueue one job. It is written once, even if the call is retried: if you pass no `idempotency_key`, the
        client makes one.

        - data: any JSON value, or bytes.
        - priority: 0 to 9, highest first.
        - delay_ms, run_at: when the job becomes ready.
        - ttl_ms: how long until it expires; 0: never.
        - max_deliveries: default: the topic's.
        - key: updates a waiting job with the same key.
        - group: one job of a group runs at a time, in order.
        - dedupe_id: duplicates within the topic's dedupe window are dropped.
        - traceparent: stored in `meta`; default: OpenTelemetry's current context, if installed.

        Raises TopicNotFound if the topic does not exist."""
        record = models.Record(
            data=data,
            tag=tag,
            meta=meta,
            priority=priority,
            delay_ms=delay_ms,
            run_at=run_at,
            ttl_ms=ttl_ms,
            max_deliveries=max_deliveries,
            key=key,
            content_type=content_type,
            group=group,
            dedupe_id=dedupe_id,
            user_id=user_id,
            tenant=tenant,
            webhook=webhook,
        )

        def enqueued(reply: Reply) -> models.Enqueued:
            appended = read(models.Appended, reply.body)
            return models.Enqueued(self.name, appended.seqs[0], duplicate=bool(appended.duplicates))

        return self._append([record], enqueued, idempotency_key, traceparent)

    @verb
    def enqueue_many(
        self,
        records: Iterable[models.Record | Any],
        *,
        node: str | None = None,
        config: models.TopicConfig | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> Request[models.Appended]:
        """Write 1 to 10,000 records to a queue or a log, all of them or none. They are written once, as in `enqueue`.

        - records: Records; any other value is the data of one.
        - node: the producer of records that name none.
        - config: create the topic with these settings if it does not exist. Needs the scope admin.
        """
        return self._append(records, reads(models.Appended), idempotency_key, traceparent, node=node, config=config)

    append = enqueue_many

    def _append(
        self,
        records: Iterable[Any],
        answered: Callable[[Reply], T],
        idempotency_key: str | None,
        traceparent: str | None,
        *,
        node: str | None = None,
        config: models.TopicConfig | None = None,
    ) -> Request[T]:
        uploads: list[Upload] = []
        if (objects := self._sender.objects) is not None:
            records = [objects.packed(self.name, record, uploads) for record in records]
        body = {
            "node": node,
            "create": config is not None,
            "config": None if config is None else settings_of(self.name, config),
            "idempotency_key": idempotency_key or uuid.uuid4().hex,
            "records": records_of(records, _trace.context(traceparent)),
        }
        return Request("POST", self._path(), answered, body=encode(without_none(body)), uploads=uploads)

    @verb
    def diff(
        self,
        from_seq: int = 0,
        *,
        limit: int | None = None,
        node: str | Sequence[str] | None = None,
        include_tags: bool | None = None,
        include_meta: bool | None = None,
        include_data: bool | None = None,
        wait_ms: int = 0,
        max_batch_bytes: int | None = None,
    ) -> Request[models.Diff]:
        """Read records after `from_seq`, oldest first. For a queue, reads its live jobs without claiming them.

        - node: leave out records of these producers.
        - wait_ms: how long to wait for a record, at most 30,000.
        """
        body = {
            "from_seq": from_seq,
            "limit": limit,
            "node": node,
            "include_tags": include_tags,
            "include_meta": include_meta,
            "include_data": include_data,
            "wait_ms": wait_ms,
            "max_batch_bytes": max_batch_bytes,
        }
        return Request(
            "POST",
            self._path("diff"),
            reads(models.Diff),
            body=encode(without_none(body)),
            wait_ms=wait_ms,
        )

    @verb
    def delete_records(
        self, *, before_seq: int | None = None, tag: str | None = None
    ) -> Request[models.RecordsDeleted]:
        """Delete records with a seq below `before_seq` and with this tag. A tag that ends in * is a prefix. In a queue,
        waiting jobs are deleted and leased jobs are cancelled."""
        body = without_none({"before_seq": before_seq, "match": tag})
        return Request(
            "POST",
            self._path("delete"),
            reads(models.RecordsDeleted),
            body=encode(body),
            wait_ms=ALL_MS,
        )
