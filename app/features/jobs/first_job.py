"""Getting started on empty pages: commands to enqueue, claim and complete a job, and a test job. docs/admin.md."""

from __future__ import annotations

import time
from typing import Final

import msgspec
from starlette.requests import Request

from app.errors import InvalidRequest
from app.features.jobs import job_parts
from app.http.context import Context, context_of
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Seq
from app.kernel.topics.policy import AskedInFull, Policy
from app.pages.permissions import CHANGE_JOBS, CONFIGURE, allows

QUEUE: Final = "orders"
CONFIG: Final = (
    '{"type": "queue", "durable": true, "max_deliveries": 20, "dead_letter": "orders.dlq", '
    '"backoff": {"kind": "exponential", "base_ms": 1000, "cap_ms": 600000, "jitter": "full"}}'
)
_JOB: Final = '{"data": {"order": 1}}'


class FirstSteps(msgspec.Struct, frozen=True):
    """The content of an empty page.

    enqueue, claim, ack: commands for bash. creates: the first one also creates the queue. guarded: they send a key.
    send: where to post to send a test job, "" if the visitor may not.
    """

    topic: str
    creates: bool
    enqueue: str
    claim: str
    ack: str
    guarded: bool
    send: str


def first_steps(request: Request, policy: Policy | None = None, seq: int = 1) -> FirstSteps:
    """Return the steps for a queue, or for a service without topics (None). `seq`: the job that `ack` completes."""
    base, guarded = job_parts.base_of(request), context_of(request).access.directory.guarded
    if policy is None:
        topic, send, body = QUEUE, "/admin/first-job", f'{{"config": {CONFIG}, "records": [{_JOB}]}}'
        may_send = allows(request, CONFIGURE, topic) and allows(request, CHANGE_JOBS, topic)
    else:
        topic = policy.topic.name
        send, body = f"/admin/topics/{topic}/test-job", f'{{"records": [{_JOB}]}}'
        may_send = allows(request, CHANGE_JOBS, topic)
    return FirstSteps(
        topic,
        policy is None,
        job_parts.post_command(base, topic, body, guarded=guarded),
        job_parts.post_command(base, f"{topic}/claim", '{"node": "worker-1"}', guarded=guarded),
        job_parts.post_command(base, f"{topic}/ack", f'{{"node": "worker-1", "seqs": [{seq}]}}', guarded=guarded),
        guarded,
        send if may_send else "",
    )


def first_config() -> AskedInFull:
    """Return the configuration of the queue that `FirstSteps.enqueue` creates."""
    return msgspec.json.decode(CONFIG, type=AskedInFull)


async def send_test_job(context: Context, policy: Policy) -> Seq:
    """Enqueue a test job. Its payload is unique. Raises TopicFull, and InvalidRequest if the topic refuses the job."""
    payload = msgspec.json.encode({"test": True, "sent_ms": time.time_ns() // 1_000_000})
    return await place_one(context, policy, Batch.of([payload]), len(payload))


async def place_one(context: Context, policy: Policy, batch: Batch, size: int) -> Seq:
    """Enqueue a batch of one job. Returns its seq. Raises InvalidRequest for a duplicate."""
    placed = await context.engine.enqueues.place(policy, batch, size)
    if isinstance(placed, Placement) and placed.duplicates:
        raise InvalidRequest("Nothing was enqueued: the job is a duplicate within the topic's dedupe window.")
    (seq,) = placed.seqs if isinstance(placed, Placement) else placed
    return seq
