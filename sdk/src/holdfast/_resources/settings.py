"""Calls on topics: settings, pause, resume, drain."""

from __future__ import annotations

from typing import Any, Final, Literal

from holdfast import models
from holdfast._body import fields_of
from holdfast._verbs import Resource, S, listing, verb
from holdfast._wire import ALL_MS, Request, encode, path, reads, reads_page, without_none
from holdfast.models.topics import DEAD_LETTERS

_QUEUE: Final = models.TopicConfig()


def settings_of(topic: str, config: models.TopicConfig) -> dict[str, Any]:
    """A topic's settings as JSON, without defaults that don't apply to this topic."""
    settings = fields_of(config)
    if config.type == "log":
        for name in ("max_deliveries", "dead_letter", "backoff"):
            if getattr(config, name) == getattr(_QUEUE, name):
                del settings[name]
    elif config.dead_letter == DEAD_LETTERS and (config.on_exhausted == "fail" or topic.endswith(DEAD_LETTERS)):
        del settings["dead_letter"]
    elif config.dead_letter is None:
        # The service's default would redeliver failed jobs forever.
        if config.max_deliveries and config.on_exhausted is None:
            settings["on_exhausted"] = "fail"
    elif config.dead_letter.startswith("."):
        settings["dead_letter"] = f"{topic}{config.dead_letter}"
    return settings


class NamedTopic(Resource[S]):
    """Base class of calls on one topic."""

    def __init__(self, sender: S, name: str) -> None:
        super().__init__(sender)
        self.name = name

    def _path(self, *parts: str | int) -> str:
        return path("topics", self.name, *parts)


class TopicSettings(NamedTopic[S]):
    """Calls on the topic itself."""

    @verb
    def put(self, config: models.TopicConfig | None = None) -> Request[models.TopicPut]:
        """Create the topic, or replace its settings. Fields that `config` does not set get the defaults of TopicConfig.
        By default a job is delivered up to 20 times with growing pauses, and then becomes a dead letter."""
        body = encode(settings_of(self.name, config or _QUEUE))
        return Request("PUT", self._path(), reads(models.TopicPut), body=body)

    @verb
    def get(self, *, touch: bool | None = None) -> Request[models.TopicState]:
        """The topic's settings and counts. `touch=False`: don't count this as a read of the topic."""
        return Request("GET", self._path(), reads(models.TopicState), params={"touch": touch})

    @verb
    def delete(self, *, if_empty: bool = False) -> Request[models.TopicRemoved]:
        """Delete the topic with all its jobs or records. Millions of jobs take minutes. `if_empty`: raise Conflict if
        it is not empty."""
        params = {"if_empty": if_empty or None}
        return Request("DELETE", self._path(), reads(models.TopicRemoved), params=params, wait_ms=ALL_MS)

    @verb
    def pause(self, *, tenant: str | None = None) -> Request[models.Control]:
        """Pause the topic, or one tenant: workers get no jobs until you resume it."""
        return self._control("pause", tenant)

    @verb
    def resume(self, *, tenant: str | None = None) -> Request[models.Control]:
        """Resume the topic, or one tenant. Without a tenant it also ends a drain."""
        return self._control("resume", tenant)

    @verb
    def drain(self, *, wait_ms: int = 0) -> Request[models.Drained]:
        """Drain the topic: it accepts no new jobs. Waits up to `wait_ms` (at most 60,000) until it is empty."""
        return Request(
            "POST",
            self._path("drain"),
            reads(models.Drained),
            body=encode({"wait_ms": wait_ms}),
            wait_ms=wait_ms,
        )

    def _control(self, what: str, tenant: str | None) -> Request[models.Control]:
        body = encode(without_none({"tenant": tenant}))
        return Request("POST", self._path(what), reads(models.Control), body=body)


class Topics(Resource[S]):
    """The topics of the service: `client.topics`."""

    @listing
    def list(
        self,
        *,
        prefix: str | None = None,
        touch: bool | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> Request[models.Page[models.TopicSummary]]:
        """All topics, by name."""
        params = {"prefix": prefix, "touch": touch, "page_size": page_size, "cursor": cursor}
        return Request("GET", path("topics"), reads_page(models.TopicSummary, "topics"), params=params)

    @listing
    def overview(
        self,
        *,
        prefix: str | None = None,
        troubled: bool | None = None,
        sort: Literal["name", "worst", "oldest", "ready", "dead"] | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> Request[models.Page[models.TopicOverview]]:
        """The state of topics: their jobs, the outcomes of the last hour, and problems."""
        params = {"prefix": prefix, "troubled": troubled, "sort": sort, "page_size": page_size, "cursor": cursor}
        return Request("GET", path("overview"), reads_page(models.TopicOverview, "topics"), params=params)
