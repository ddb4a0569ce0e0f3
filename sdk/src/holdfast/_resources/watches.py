"""Watches: records of several topics over one stream: `client.watches`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast import models
from holdfast._decode import read
from holdfast._sse import Frame
from holdfast._streams import Stream
from holdfast._verbs import Resource, S, stream, verb
from holdfast._wire import Repeat, Request, encode, path, reads, without_none

_NEWS: Final[Mapping[str, type[models.WatchNews]]] = {
    "record": models.Records,
    "tombstone": models.Tombstone,
    "caught-up": models.CaughtUp,
    "topic-deleted": models.TopicDeleted,
}


class Watches(Resource[S]):
    """Watches. Make one with `make`, then open it with `events`."""

    @verb
    def make(
        self,
        topics: Mapping[str, int | None],
        *,
        limit: int | None = None,
        max_batch_bytes: int | None = None,
        heartbeat_ms: int | None = None,
        node: str | Sequence[str] | None = None,
        include_meta: bool | None = None,
        include_tags: bool | None = None,
        include_data: bool | None = None,
        lenient: bool = False,
    ) -> Request[models.Watch]:
        """Make a watch. `topics` maps names to the last seq that the reader has; None: only new records. `lenient`:
        leave out topics that don't exist."""
        body = {
            "topics": {name: {"tail": True} if seq is None else {"from_seq": seq} for name, seq in topics.items()},
            **{"limit": limit, "max_batch_bytes": max_batch_bytes, "heartbeat_ms": heartbeat_ms, "node": node},
            **{"include_meta": include_meta, "include_tags": include_tags, "include_data": include_data},
        }
        return Request(
            "POST",
            path("watch"),
            reads(models.Watch),
            params={"lenient": lenient or None},
            body=encode(without_none(body)),
            repeat=Repeat.IF_REFUSED,
        )

    @stream
    def events(self, wid: str, *, last_event_id: str | None = None) -> Stream[models.WatchNews]:
        """Stream a watch's events. The service remembers the position; `last_event_id` moves it back."""
        headers = {"accept": "text/event-stream"} | ({"last-event-id": last_event_id} if last_event_id else {})
        request = Request("GET", path("watch", wid), lambda _: None, headers=headers)

        def news(frame: Frame, body: Any) -> models.WatchNews | None:
            kind = _NEWS.get(frame.event)
            return None if kind is None else read(kind, body)

        return Stream(request, news, silence=90)
