"""Schedules, which enqueue jobs at set times: `client.schedules`."""

from __future__ import annotations

from typing import Any

from holdfast import models
from holdfast._body import record_of
from holdfast._verbs import Resource, S, listing, verb
from holdfast._wire import Repeat, Request, encode, path, reads, reads_page, without_none
from holdfast.models.schedules import Missed


class Schedules(Resource[S]):
    """Schedules, by name."""

    @listing
    def list(
        self, *, prefix: str | None = None, page_size: int | None = None, cursor: str | None = None
    ) -> Request[models.Page[models.ScheduleSummary]]:
        """All schedules, by name."""
        return Request(
            "GET",
            path("schedules"),
            reads_page(models.ScheduleSummary, "schedules"),
            params={"prefix": prefix, "page_size": page_size, "cursor": cursor},
        )

    @verb
    def put(
        self,
        name: str,
        *,
        topic: str,
        cron: str,
        record: models.Record | Any,
        time_zone: str | None = None,
        missed: Missed | None = None,
        paused: bool | None = None,
    ) -> Request[models.Schedule]:
        """Create or replace a schedule. docs/schedules.md.

        - cron: a cron expression of five fields.
        - record: the job, or its data.
        - time_zone: an IANA name; default: UTC.
        - missed: what to do about times that passed while the service was not running.
        """
        body = {
            **{"topic": topic, "cron": cron, "time_zone": time_zone, "missed": missed, "paused": paused},
            "record": record_of(record, {}),
        }
        return self._one("PUT", name, body=encode(without_none(body)))

    @verb
    def get(self, name: str) -> Request[models.Schedule]:
        """A schedule and its next times."""
        return self._one("GET", name)

    @verb
    def pause(self, name: str) -> Request[models.Schedule]:
        """Pause a schedule. It enqueues no jobs until you resume it."""
        return self._one("POST", name, "pause")

    @verb
    def resume(self, name: str) -> Request[models.Schedule]:
        """Resume a paused schedule."""
        return self._one("POST", name, "resume")

    @verb
    def run(self, name: str) -> Request[models.ScheduleRun]:
        """Enqueue one job of a schedule now."""
        return Request(
            "POST",
            path("schedules", name, "run"),
            reads(models.ScheduleRun),
            repeat=Repeat.IF_REFUSED,
        )

    @verb
    def delete(self, name: str) -> Request[None]:
        """Delete a schedule. Raises NotFound if it does not exist."""
        return Request("DELETE", path("schedules", name), lambda _: None)

    @staticmethod
    def _one(method: str, *parts: str, body: bytes | None = None) -> Request[models.Schedule]:
        return Request(method, path("schedules", *parts), reads(models.Schedule), body=body)
