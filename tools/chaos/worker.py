"""`python -m tools.chaos.worker`: a worker of the SDK, whose calls are written down as they pass by httpx.

CHAOS_FOLDER and CHAOS_WHO: where, and as whom. CHAOS_TOPICS: names with commas between. CHAOS_LEASE: seconds.
HOLDFAST_URL: where the service is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import httpx

from holdfast import AsyncContext, Dead, Queue, Retry, Worker
from tools.chaos.record import Recorder, answered_of, asked_of, outcome_of
from tools.history.history import Outcome

VERBS: Final = {"claim", "ack", "nack", "extend", "fail"}
SETTLED_AT_LAST: Final = 4  # deliveries; from then on a job is done, so that the queue can be drained


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    recorder = Recorder(Path(os.environ["CHAOS_FOLDER"]), os.environ["CHAOS_WHO"])
    write_down(recorder)
    queue = Queue()
    for topic in os.environ["CHAOS_TOPICS"].split(","):
        queue.handler(topic, concurrency=4)(handler(dead=topic.endswith("few")))
    asyncio.run(Worker(queue, lease=float(os.environ["CHAOS_LEASE"])).run())


def handler(*, dead: bool) -> Callable[..., Coroutine[Any, Any, object]]:
    """Does a job well or badly, the same way whoever does this delivery of it."""

    async def work(job: dict[str, Any], context: AsyncContext) -> object:
        dice = random.Random(f"{job['id']} {context.received_count}")
        kind = dice.random()
        if context.received_count >= SETTLED_AT_LAST or kind < 0.6:
            await asyncio.sleep(dice.uniform(0, 0.02))
            return None
        if kind < 0.7:
            await asyncio.sleep(dice.uniform(0, 1.2))  # its lease is extended meanwhile
            return None
        if kind < 0.85:
            return Retry(dice.choice((0, 0.05, 0.3)))
        if kind < 0.9 and dead:
            return Dead("as a test")
        raise RuntimeError("as a test")

    return work


def write_down(recorder: Recorder) -> None:
    """Every call of this process, by the loop's client and by the heartbeats' thread."""
    send, send_async = httpx.HTTPTransport.handle_request, httpx.AsyncHTTPTransport.handle_async_request

    def begin(request: httpx.Request) -> tuple[str, str] | None:
        verb, topic = request.url.path.rsplit("/", 1)[-1], request.url.path.split("/")[3]
        if verb not in VERBS:
            return None
        return verb, recorder.invoke(verb, topic, **asked_of(verb, json.loads(request.content)))

    def end(call: tuple[str, str], response: httpx.Response) -> None:
        verb, op = call
        outcome = outcome_of(response.status_code)
        answer = json.loads(response.content) if outcome is Outcome.DONE else {}
        recorder.end(op, outcome, **(answered_of(verb, answer) if answer else {}))
        if not answer and response.status_code != 503:
            recorder.surprise(f"{verb} of the SDK: {response.status_code} {response.text[:300]}")

    def lost(call: tuple[str, str] | None) -> None:
        if call is not None:
            recorder.end(call[1], Outcome.IN_DOUBT)

    def watched(self: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        call = begin(request)
        try:
            response = send(self, request)
            response.read()
        except BaseException:
            lost(call)
            raise
        if call is not None:
            end(call, response)
        return response

    async def watched_async(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        call = begin(request)
        try:
            response = await send_async(self, request)
            await response.aread()
        except BaseException:
            lost(call)
            raise
        if call is not None:
            end(call, response)
        return response

    httpx.HTTPTransport.handle_request = watched  # type: ignore[method-assign]
    httpx.AsyncHTTPTransport.handle_async_request = watched_async  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
