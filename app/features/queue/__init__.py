"""The hot routes: enqueue, claim, ack, nack, fail, extend, and the work stream."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.queue import messages_bodies as messages
from app.features.queue import (
    messages_enqueue,
    messages_leases,
    v0_append,
    v0_bodies,
    v0_leases,
    v0_work,
)
from app.http.messages.dialect import MESSAGES
from app.http.messages.ids import ID
from app.http.options import IDEMPOTENCY_KEY
from app.http.route import Route
from app.http.v0 import records
from app.http.v0.dialect import V0

_TOPIC: Final = "/v0/topics/{topic}"
_CONFLICT: Final = frozenset({409})
_FULL: Final = frozenset({409, 422})

_v0 = partial(Route, dialect=V0, hot=True, consumes=True, confines=True, refuses=_CONFLICT)
_claims = partial(_v0, scope=Scope.READ | Scope.WRITE, parameters=[v0_leases.COUNTS])
_settles = partial(_v0, scope=Scope.WRITE, parameters=[v0_leases.COUNTS])
_messages = partial(Route, dialect=MESSAGES, hot=True, scope=Scope.WRITE, confines=True)
_of_one = partial(_messages, consumes=True, parameters=[ID], empty=b"{}")

FEATURE: Final = Feature(
    "queue",
    routes=[
        Route(
            "POST",
            _TOPIC,
            v0_append.append,
            dict.fromkeys((200, 201), records.AppendAnswer),
            dialect=V0,
            scope=Scope.WRITE,
            hot=True,
            confines=True,
            takes=(records.AppendBody, records.LogAppendBody),
            parameters=[v0_append.RETURN_SEQS, IDEMPOTENCY_KEY],
            refuses=_FULL | {429},
            verb="enqueue",
        ),
        _claims(
            "POST",
            f"{_TOPIC}/claim",
            v0_leases.claim,
            {200: v0_bodies.ClaimAnswer},
            takes=v0_bodies.ClaimBody,
            verb="claim",
        ),
        _claims(
            "POST",
            "/v0/claim",
            v0_leases.claim_any,
            {200: v0_bodies.ClaimAnyAnswer},
            takes=v0_bodies.ClaimAnyBody,
            refuses=frozenset({404, 409}),
        ),
        *(
            _settles("POST", f"{_TOPIC}/{do.__name__}", do, {200: answer}, takes=body)
            for do, body, answer in (
                (v0_leases.ack, v0_bodies.AckBody, v0_bodies.AckAnswer),
                (v0_leases.nack, v0_bodies.NackBody, v0_bodies.NackAnswer),
                (v0_leases.fail, v0_bodies.FailBody, v0_bodies.FailAnswer),
            )
        ),
        _settles(
            "POST",
            f"{_TOPIC}/extend",
            v0_leases.extend,
            {200: v0_bodies.ExtendAnswer},
            takes=v0_bodies.ExtendBody,
            parameters=(),
        ),
        _messages(
            "POST",
            "/api/messages",
            messages_enqueue.enqueue,
            {201: messages.EnqueueAnswer},
            takes=messages.EnqueueBody,
            parameters=[IDEMPOTENCY_KEY],
            refuses=_FULL,
        ),
        _messages(
            "POST",
            "/api/messages/batch",
            messages_enqueue.enqueue_batch,
            {201: messages.BatchAnswer},
            takes=messages.BatchBody,
            parameters=[IDEMPOTENCY_KEY],
            refuses=_FULL,
            verb="enqueue",
        ),
        _messages(
            "POST",
            "/api/messages/dequeue",
            messages_leases.dequeue,
            {200: messages.DequeueAnswer},
            scope=Scope.READ | Scope.WRITE,
            consumes=True,
            takes=messages.DequeueBody,
            refuses=_CONFLICT,
            verb="claim",
        ),
        _of_one(
            "POST", "/api/messages/{id}/ack", messages_leases.ack, {204: None}, takes=messages.MessageAck, verb="ack"
        ),
        _of_one(
            "POST",
            "/api/messages/{id}/nack",
            messages_leases.nack,
            {204: None, 200: messages.MessageNackAnswer},
            takes=messages.MessageNack,
        ),
        _of_one(
            "POST",
            "/api/messages/{id}/extend",
            messages_leases.extend,
            {200: messages.MessageExtendAnswer},
            takes=messages.MessageExtend,
        ),
        _messages(
            "POST",
            "/api/messages/ack",
            messages_leases.ack_batch,
            {200: messages.AckBatchAnswer},
            consumes=True,
            takes=messages.AckBatchBody,
            verb="ack",
        ),
        _v0(
            "GET",
            f"{_TOPIC}/work",
            v0_work.work,
            {200: None},
            scope=Scope.READ | Scope.WRITE,
            query_token=True,
            parameters=v0_work.PARAMETERS,
            refuses=frozenset({406, 409, 429}),
            described={"responses": {"200": v0_work.ANSWER}},
        ),
    ],
)
