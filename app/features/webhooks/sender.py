"""Send webhooks. Each process has a worker for the service's own queue of deliveries."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import ssl
import time
from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
from asyncpg.pgproto.pgproto import UUID

from app import __version__
from app.base.loops import Loop, end_tasks
from app.base.metrics import catalogue
from app.base.outages import UNREACHABLE
from app.errors import HoldfastError, InvalidRequest, NotAQueue, TopicNotFound
from app.features.webhooks import http
from app.features.webhooks.http import AllowedTargets, BlockedError, signature
from app.kernel.claim.consumer import Return
from app.kernel.claim.walk import Claimer
from app.kernel.model import HeldJob, Job
from app.kernel.topics import webhooks
from app.kernel.topics.webhooks import DELIVERIES, check_url

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine
    from app.kernel.topics.policy import Policy

LEASE_MS: Final = 60_000  # several times the timeout of a request, so no heartbeats are needed
WAIT_SECONDS: Final = 10.0
REST_MS: Final = 30_000  # pause before a delivery to a slow receiver is tried again; up to twice as long
LOOK_SECONDS: Final = 5.0  # pause between looks until the first delivery creates the topic
GONE: Final = 410
AT_ONCE: Final = 32  # concurrent requests per process
SLOW_AT_ONCE: Final = 4  # concurrent requests to one slow destination
SLOW_SECONDS: Final = 2.0
MOST_SLOW: Final = 10_000

log = logging.getLogger(__name__)


class _Delivery(msgspec.Struct):
    """The payload of a delivery, written by `holdfast.tell`."""

    url: str
    topic: str
    topic_id: int
    body: msgspec.Raw

    @property
    def destination(self) -> str:
        return urlsplit(self.url).netloc.lower()


_delivery = msgspec.json.Decoder(_Delivery)


def _delivery_of(job: Job) -> _Delivery | None:
    try:
        delivery = _delivery.decode(job.payload)
        check_url(delivery.url, "url")
    except (msgspec.DecodeError, InvalidRequest):
        return None
    return delivery


class Places:
    """Limits concurrent requests, so that a slow receiver only delays its own deliveries. A destination is slow if its
    last request took SLOW_SECONDS or longer."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._slow: dict[str, None] = {}  # oldest first

    @property
    def free(self) -> int:
        return AT_ONCE - self._taken.total()

    def take(self, destination: str) -> bool:
        """Take a place. False if the destination is slow and its places are taken."""
        if destination in self._slow and self._taken[destination] >= SLOW_AT_ONCE:
            return False
        self._taken[destination] += 1
        return True

    def leave(self, destination: str, seconds: float) -> None:
        """Free a place after a request that took `seconds`."""
        self._taken[destination] -= 1
        if not self._taken[destination]:
            del self._taken[destination]
        self._slow.pop(destination, None)
        if seconds >= SLOW_SECONDS:
            self._slow[destination] = None
            if len(self._slow) > MOST_SLOW:
                del self._slow[next(iter(self._slow))]


class Undeliverable(Exception):
    """The delivery has failed for good: another try would not help."""


class Sender:
    """Claims deliveries and sends them. A delivery without a 2xx answer is sent again after the topic's backoff, until
    it has no deliveries left. `secret` signs for topics without a secret of their own."""

    def __init__(self, pools: Pools, engine: Engine, *, allowed: AllowedTargets, secret: str | None) -> None:
        self._pools = pools
        self._engine = engine
        self._allowed = allowed
        self._secret = secret
        self._node = f"webhooks:{secrets.token_hex(4)}"
        self._loop = Loop("look for webhooks to send", self._look, LOOK_SECONDS, jitter=0.2)
        self._sending: set[asyncio.Task[None]] = set()
        self._places = Places()
        self._outcomes = {
            outcome: engine.metrics.counter(catalogue.WEBHOOKS, outcome)
            for outcome in ("delivered", "refused", "unreachable", "blocked", "gone", "unsigned")
        }
        self._seconds = engine.metrics.histogram(catalogue.WEBHOOK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        """Stop sending. Deliveries in flight are returned at once, though they may have arrived."""
        await self._loop.stop()
        await end_tasks(*self._sending)

    async def _look(self) -> float | None:
        with contextlib.suppress(TopicNotFound, NotAQueue):
            await self._send_some(await self._engine.policies.queue(DELIVERIES))
            return 0.0
        return None

    async def _send_some(self, policy: Policy) -> None:
        room = self._places.free
        if room == 0:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
            return
        later: list[Job] = []
        for job in await self._engine.claims.claim(Claimer(policy, self._node, room, LEASE_MS), WAIT_SECONDS):
            delivery = _delivery_of(job)
            if delivery is None:
                await self._engine.settlements.fail(policy, self._leases(job), ["the payload is not a valid delivery"])
            elif self._places.take(delivery.destination):
                task = asyncio.create_task(self._send(policy, job, delivery))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
            else:
                later.append(job)
        if later:
            # Their receivers are slow and busy. This does not count as a try.
            returns = [Return(delay_ms=int(REST_MS * random.uniform(1, 2)), refunds=None) for _ in later]  # noqa: S311
            await self._engine.settlements.nack(policy, self._leases(*later), returns)

    def _leases(self, *jobs: Job) -> list[HeldJob]:
        return [HeldJob(job.seq, UUID(job.lease), self._node) for job in jobs]

    async def _send(self, policy: Policy, job: Job, delivery: _Delivery) -> None:
        settlements, held = self._engine.settlements, self._leases(job)
        began = time.monotonic()
        try:
            try:
                refusal = await self._deliver(policy, job, delivery)
            except Undeliverable as error:
                await settlements.fail(policy, held, [str(error)])
                return
            if refusal is None:
                await settlements.ack(policy, held)
            else:
                await settlements.nack(policy, held, [Return(delay_ms=None, error=refusal)])
        except asyncio.CancelledError:
            await settlements.give_back(policy, self._node, [job])
            raise
        except (*UNREACHABLE, HoldfastError) as error:
            log.warning("a webhook delivery could not be settled and is retried after its lease: %r", error)
        except Exception:
            log.exception("a webhook delivery could not be settled and is retried after its lease")
        finally:
            self._places.leave(delivery.destination, time.monotonic() - began)

    async def _deliver(self, policy: Policy, job: Job, delivery: _Delivery) -> str | None:
        """Send a delivery once. Returns None if the receiver accepted it, else the error. Raises Undeliverable."""
        secret = await webhooks.secret_of(self._pools.rest, delivery.topic, delivery.topic_id) or self._secret
        if secret is None:
            raise self._give_up("unsigned", "there is no secret to sign with any more")
        body, identity, now = bytes(delivery.body), f"msg_{policy.topic.id}_{job.seq}", int(time.time())
        headers = {
            "content-type": "application/json",
            "user-agent": f"Holdfast/{__version__}",
            "webhook-id": identity,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(secret, identity, now, body),
        }
        began = time.monotonic()
        try:
            status = await http.post(delivery.url, headers, body, self._allowed)
        except BlockedError as error:
            raise self._give_up("blocked", str(error)) from None
        except TimeoutError:
            error_text = f"no answer within {http.TIMEOUT_SECONDS:.0f} s"
        except (http.AnswerError, ssl.SSLError, OSError, UnicodeError) as error:
            error_text = f"{type(error).__name__}: {error}"
        else:
            self._seconds.observe(time.monotonic() - began)
            if 200 <= status < 300:
                self._outcomes["delivered"].add()
                return None
            if status == GONE:
                raise self._give_up("gone", "HTTP 410: the receiver wants no more webhooks")
            self._outcomes["refused"].add()
            return f"HTTP {status}" + (": redirects are not followed" if 300 <= status < 400 else "")
        self._outcomes["unreachable"].add()
        return error_text

    def _give_up(self, outcome: str, why: str) -> Undeliverable:
        self._outcomes[outcome].add()
        return Undeliverable(why)
