"""POST /v0/watch and GET /v0/watch/:wid: several topics as server-sent events. docs/semantics.md, section 17."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.types import Send

from app.base.keys import Key, Scope
from app.errors import Forbidden, InvalidRequest, TopicNotFound, Unavailable
from app.features.logs.store import TTL_MS, Options, WatchPlace
from app.features.logs.v0 import MAX_LIMIT, Nodes, RecordShown, Tombstone, nodes_of, records_shown, tombstone
from app.features.logs.watches import Watch, Watches, WatchNews
from app.http.bounds import Count, Seq, about, seq_within
from app.http.fields import encode, flag
from app.http.openapi import events, header, path, query
from app.http.route import Call
from app.http.sight import must_see_payloads
from app.http.sse import (
    ADVICE_SECONDS,
    HEARTBEAT,
    ErrorFrame,
    EventStream,
    close,
    error_frame,
    must_accept_events,
    one_line,
    push,
)
from app.kernel.topics.policy import check_name
from app.kernel.topics.settings import PATTERN

MAX_WATCHED: Final = 256  # topics per watch
DEFAULT_LIMIT: Final = 256
DEFAULT_BYTES: Final = 256 * 1024
MAX_BYTES: Final = 1024 * 1024  # a slow reader holds this much memory of the process
DEFAULT_HEARTBEAT_MS: Final = 15_000
HEARTBEATS_MS: Final = (1_000, 60_000)
ID_BYTES: Final = 4 * 1024  # of JSON: an id must fit into a header

_FRAMES: Final = """retry: 2000

: hb

id: eyJ2aXNpdHMiOjJ9
event: tombstone
data: {"topic":"visits","gap_from":2,"gap_to":2,"reason":"cap","missed_estimate":1,"earliest_seq":3,"head_seq":5}

id: eyJ2aXNpdHMiOjV9
event: record
data: {"topic":"visits","records":[{"$seq":3,"$ts":1795256013881,"data":3}],"from_seq":1,"to_seq":5,"head_seq":5}

id: eyJ2aXNpdHMiOjV9
event: caught-up
data: {"topic":"visits","head_seq":5}

event: topic-deleted
data: {"topic":"visits","head_seq":5,"reason":"deleted"}
"""

_seqs = msgspec.json.Decoder(dict[str, Seq])

LENIENT: Final = query("lenient", "true: leave out topics that do not exist.", {"type": "boolean", "default": False})
CONNECTION: Final = (
    path("wid", "The watch.", {"type": "string"}),
    query("token", "The API key, for browsers' EventSource only.", {"type": "string"}),
    header("Last-Event-ID", "The last event that the client has. It can only go back.", {"type": "string"}),
)


class WatchFrom(msgspec.Struct, forbid_unknown_fields=True):
    """The start of a topic's watch: after a seq, or with `tail`, after its current end."""

    from_seq: Annotated[Seq | None, about("The last seq that the client has.", 0)] = None
    tail: Annotated[bool | None, about("Whether to send only new records.", False)] = None


class WatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """1 to 256 topics to watch, and the size of events."""

    topics: Annotated[
        dict[str, WatchFrom | None],
        Meta(
            description="Topics by name. null: from the beginning.",
            min_length=1,
            max_length=MAX_WATCHED,
            extra_json_schema={"propertyNames": {"pattern": PATTERN}},
        ),
    ]
    node: Nodes = None
    limit: Annotated[Count | None, about("Most records per event, clamped to 1000. 0: the default.", 256)] = None
    max_batch_bytes: Annotated[
        Count | None,
        about("Most bytes of data and meta per event, clamped to 1 MiB. 0: the default.", 256 * 1024),
    ] = None
    heartbeat_ms: Annotated[
        Count | None, about("Send a comment after this time without a frame, in ms, clamped to 1000 to 60000.", 15_000)
    ] = None
    include_meta: Annotated[bool | None, about("Whether to show meta.", True)] = None
    include_tags: Annotated[bool | None, about("Whether to show $tag.", False)] = None
    include_data: Annotated[bool | None, about("Whether to show data.", True)] = None
    consistency: Annotated[Literal["eventual", "strong"] | None, about("Has no effect.")] = None


class WatchedTopic(msgspec.Struct):
    """The start of a topic's watch, and the topic's first and last seq."""

    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchAnswer(msgspec.Struct):
    """A watch. Open `stream_url` within session_ttl_ms. The same time applies after a connection has ended."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchedTopic]


class RecordsFrame(msgspec.Struct):
    """Records after from_seq, up to to_seq, the last scanned seq."""

    topic: str
    records: list[RecordShown]
    from_seq: int
    to_seq: int
    head_seq: int


class TombstoneFrame(Tombstone, kw_only=True):
    """Lost records, as in a diff's tombstone."""

    topic: str


class CaughtUpFrame(msgspec.Struct):
    """The watch has caught up with the topic."""

    topic: str
    head_seq: int


class TopicDeletedFrame(msgspec.Struct):
    """The topic was deleted or created again, so its events end. head_seq: the last seq that the watch knew."""

    topic: str
    head_seq: int
    reason: Literal["deleted"]


# The data of events by name. For the description only: _frames builds them from JSON parts.
WATCH: Final[Mapping[str, type[msgspec.Struct]]] = {
    "record": RecordsFrame,
    "tombstone": TombstoneFrame,
    "caught-up": CaughtUpFrame,
    "topic-deleted": TopicDeletedFrame,
    "error": ErrorFrame,
}
STREAM: Final = events("Events: record, tombstone, caught-up, topic-deleted, error.", _FRAMES, WATCH)


async def make_watch(call: Call, body: WatchBody) -> WatchAnswer:
    """Create a watch of several topics, which are sent on one stream. It is bound to the caller's key."""
    context, key = call.context, call.key
    options = _options(body)
    for name in body.topics:
        context.access.check(call.request, Scope.READ, check_name(name))
    _must_see(key, body.topics, options)
    lenient = flag(call.request, "lenient", default=False)
    places: dict[str, WatchPlace] = {}
    topics: dict[str, WatchedTopic] = {}
    found = await context.core(Watches).extents(list(body.topics))
    for name, asked in body.topics.items():
        if name not in found:
            if not lenient:
                raise TopicNotFound(name)
            continue
        topic_id, extent = found[name]
        tail = asked is not None and asked.tail
        seq = extent.head_seq if tail else seq_within((asked and asked.from_seq) or 0)
        places[name] = WatchPlace(topic_id, seq, chosen=not tail)
        topics[name] = WatchedTopic(seq, extent.head_seq, extent.earliest_seq)
    wid = await context.core(Watches).make(_owner(key), options, places)
    return WatchAnswer(wid, f"/v0/watch/{wid}", TTL_MS, topics)


async def watch(call: Call) -> Response:
    """Stream new records of a watch's topics as server-sent events. The watch's previous connection is closed."""
    request, context, key = call.request, call.context, call.key
    must_accept_events(request.headers.get("accept"))
    rewind = _last_event_id(request.headers.get("last-event-id"))
    context.quota.take_stream(request.scope, key)
    watches = context.core(Watches)
    opened = await watches.open(request.path_params["wid"], _owner(key), rewind)
    foreign = [name for name in opened.places if key is not None and not key.covers(name)]
    if foreign:  # the prefixes of a key of the environment have changed
        await watches.leave(opened)
        raise Forbidden("This key is not for this topic.", {"topic": foreign[0]})
    try:
        _must_see(key, opened.places, opened.options)  # a user's rights may have changed
    except Forbidden:
        await watches.leave(opened)
        raise
    return WatchStream(watches, opened, context.access.watch(key, opened.end))


class WatchStream(EventStream):
    """Sends a watch's news until the client disconnects or the stream must end. Then saves its places."""

    def __init__(self, watches: Watches, watch: Watch, left: Callable[[], None]) -> None:
        super().__init__()
        self._watches = watches
        self._watch = watch
        self._left = left
        self._pushing = False
        self._quiet_since = 0.0

    async def _release(self) -> None:
        self._left()
        await self._watches.leave(self._watch)

    async def _serve(self, send: Send, leaving: asyncio.Future[None]) -> None:
        watch = self._watch
        telling = asyncio.ensure_future(self._tell(send))
        leaving.add_done_callback(lambda _: telling.cancel())
        watch.ended.subscribe(lambda: self._interrupt(telling))
        try:
            if watch.error is None:
                await asyncio.wait([telling])
        finally:
            telling.cancel()
        if telling.done() and not telling.cancelled():
            telling.result()
        if watch.error is not None and not leaving.done():
            self._watches.sent["error"].add()
            await close(send, error_frame(watch.error))

    def _interrupt(self, telling: asyncio.Future[None]) -> None:
        if not self._pushing:  # don't interrupt a frame
            telling.cancel()

    async def _push(self, send: Send, event: str, frames: bytes) -> None:
        self._watches.sent[event].add()
        self._pushing = True
        await push(send, frames)
        self._pushing = False

    def _push_at_once(self, send: Send, news: WatchNews) -> bool:
        """Send at most one frame, if the connection takes it without waiting. Returns False if nothing was sent."""
        frames = self._frames(news)
        if len(frames) > 1:
            return False
        for event, frame in frames:
            if not self.push_at_once(send, frame):
                return False
            self._watches.sent[event].add()
            self._quiet_since = time.monotonic()
        return True

    async def _tell(self, send: Send) -> None:
        watch, watches, takes = self._watch, self._watches, partial(self._push_at_once, send)
        patience = watch.options.heartbeat_ms / 1000
        self._quiet_since = time.monotonic()
        while watch.error is None:
            try:
                news = await watches.next(watch, self._quiet_since + patience - time.monotonic(), takes)
            except Unavailable as error:  # the stream goes on
                await self._push(send, "error", error_frame(error, 429))
                await asyncio.sleep(ADVICE_SECONDS)
                continue
            if news is None:
                if time.monotonic() - self._quiet_since < patience:
                    continue  # a frame was sent during the wait
                await self._push(send, "heartbeat", HEARTBEAT)
                self._quiet_since = time.monotonic()
                continue
            for event, frame in self._frames(news):
                await self._push(send, event, frame)
                self._quiet_since = time.monotonic()
            watch.advance(news)

    def _tells_alone(self, news: WatchNews) -> bool:
        """Whether the news are a single record event that is the same for all watches of this topic alone."""
        return (
            len(self._watch.places) == 1
            and not news.caught_up
            and news.read is not None
            and bool(news.read.diff.records.seqs)
            and tombstone(news.before.seq, news.read.diff) is None
        )

    def _frames(self, news: WatchNews) -> list[tuple[str, bytes]]:
        """Build the frames of news. Empty if the watch leaves out all new records."""
        if news.read is not None and news.read.alone is not None and self._tells_alone(news):
            return [("record", news.read.alone)]
        places, topic = self._watch.places, encode(news.topic)
        position = _position(places, news.topic, None if news.after is None else news.after.seq)
        if news.read is None:
            data = b'{"topic":%b,"head_seq":%d,"reason":"deleted"}' % (topic, news.head)
            return [("topic-deleted", b"%bevent: topic-deleted\ndata: %b\n\n" % (position, data))]
        diff, frames = news.read.diff, []
        head = diff.extent.head_seq
        lost = tombstone(news.before.seq, diff)
        if lost is not None:
            if news.before.chosen and lost.reason != "recreated":
                lost.reason = "from_seq_too_old"
            # The position is after the gap, but before jobs that exist within a queue's gap and that follow this frame.
            after = _position(places, news.topic, min([lost.gap_to, *(seq - 1 for seq in diff.records.seqs[:1])]))
            data = b'{"topic":%b,%b' % (topic, encode(lost)[1:])
            frames.append(("tombstone", b"%bevent: tombstone\ndata: %b\n\n" % (after, data)))
        if diff.records.seqs:
            if news.read.shown is None:
                news.read.shown = _record_event(news, topic)
            frames.append(("record", position + news.read.shown))
            if self._tells_alone(news):
                news.read.alone = frames[-1][1]
        if news.caught_up:
            data = b'{"topic":%b,"head_seq":%d}' % (topic, head)
            frames.append(("caught-up", b"%bevent: caught-up\ndata: %b\n\n" % (position, data)))
        return frames


def _record_event(news: WatchNews, topic: bytes) -> bytes:
    """Build a record event without its id. It is the same for all watches that share the read."""
    assert news.read is not None
    assert news.after is not None
    diff = news.read.diff
    head, before = diff.extent.head_seq, news.before.seq
    return b'event: record\ndata: {"topic":%b,"records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d}\n\n' % (
        topic,
        one_line(b",".join(records_shown(diff.records))),
        before if before <= head else 0,
        news.after.seq,
        head,
    )


def _options(body: WatchBody) -> Options:
    least, most = HEARTBEATS_MS
    return Options(
        nodes=tuple(nodes_of(body.node)),
        limit=min(body.limit or DEFAULT_LIMIT, MAX_LIMIT),
        max_bytes=min(body.max_batch_bytes or DEFAULT_BYTES, MAX_BYTES),
        heartbeat_ms=min(max(DEFAULT_HEARTBEAT_MS if body.heartbeat_ms is None else body.heartbeat_ms, least), most),
        tags=bool(body.include_tags),
        metadata=body.include_meta is not False,
        data=body.include_data is not False,
    )


def _must_see(key: Key | None, topics: Iterable[str], options: Options) -> None:
    """Check that the key may see payloads, unless the watch has neither data nor meta. Raises Forbidden."""
    if options.data or options.metadata:
        for name in topics:
            must_see_payloads(key, name)


def _owner(key: Key | None) -> str:
    """The owner of a watch. It stays the same if a key is rotated."""
    return "" if key is None else key.id or key.digest.hex()


def _last_event_id(text: str | None) -> dict[str, int]:
    if not text:
        return {}
    try:
        return _seqs.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise InvalidRequest("Last-Event-ID is not valid. Use the id of an event of this route.") from None


def _position(places: Mapping[str, WatchPlace], topic: str, seq: int | None) -> bytes:
    """Build an event's id line: the client's seqs by topic after this event. `seq` None: the topic was deleted.

    A long id only has the topics with the latest events. Of other topics, the client has got all that was sent.
    """
    seqs = {name: place.seq for name, place in places.items() if name != topic}
    if seq is not None:
        seqs[topic] = seq
    shown = encode(seqs)
    while len(shown) > ID_BYTES:
        seqs = dict(list(seqs.items())[len(seqs) // 2 :])
        shown = encode(seqs)
    return b"id: %b\n" % base64.urlsafe_b64encode(shown).rstrip(b"=")
