"""/v0/admin/bench: what this instance reaches, measured on demand, and what it reached before."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.body import read_json
from app.api.bounds import about
from app.api.fields import encode, known_parameters
from app.api.openapi import operation
from app.api.v0.bodies import Performance
from app.api.v0.fields import answer
from app.edge import bench
from app.edge.bench import MOST_BATCH, MOST_CLIENTS, MOST_JOBS, MOST_SIZE, Asked
from app.edge.context import context_of
from app.queue import benches
from app.queue.benches import Bench, Figures

router = direct.router("admin")


class BenchBody(msgspec.Struct, forbid_unknown_fields=True):
    """How much is measured. No verb is measured for more than 5 s."""

    jobs: Annotated[Annotated[int, Meta(ge=1, le=MOST_JOBS)], about("So many in all.")] = 5_000
    batch: Annotated[Annotated[int, Meta(ge=1, le=MOST_BATCH)], about("So many a call.")] = 100
    clients: Annotated[Annotated[int, Meta(ge=1, le=MOST_CLIENTS)], about("So many calls at once.")] = 4
    size: Annotated[Annotated[int, Meta(ge=1, le=MOST_SIZE)], about("Bytes of a job's data.")] = 100


class BenchShown(msgspec.Struct):
    """A measurement: what was asked for, when, by whom, of which version, and what each verb did: enqueue, claim and
    ack, one after another. Times of calls are without the network. Times are in ms since 1970."""

    id: str
    started_at: int
    finished_at: int
    actor: str
    version: str
    jobs: int
    batch: int
    clients: int
    size: int
    verbs: list[Figures]


class BenchAnswer(BenchShown, kw_only=True):
    """The measurement that was made."""

    performance: Performance


class BenchesAnswer(msgspec.Struct):
    """Earlier measurements, the last one first: 20 are kept."""

    benches: list[BenchShown]
    performance: Performance


_body = msgspec.json.Decoder(BenchBody)


@router.post(
    "/v0/admin/bench",
    response_class=Response,
    openapi_extra=operation(
        body=BenchBody,
        body_required=False,
        answers={200: BenchAnswer},
        errors=[400, 401, 403, 409, 413, 415, 503],
    ),
)
async def run(request: Request) -> Response:
    """Measure what this instance reaches, on a topic of its own that is deleted afterwards. It takes load while it
    lasts, up to 15 s; 409 while one is under way."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check_server(request)
    known_parameters(request, set())
    body = await read_json(request, _body, context.settings.max_body_bytes, empty=b"{}")
    asked = Asked(body.jobs, body.batch, body.clients, body.size)
    made = await bench.run(context, asked, context.access.actor(request))
    return answer(encode(_shown(made))[1:-1], began)


@router.get(
    "/v0/admin/bench",
    response_class=Response,
    openapi_extra=operation(answers={200: BenchesAnswer}, errors=[400, 401, 403, 503]),
)
async def earlier(request: Request) -> Response:
    """Earlier measurements of this instance, the last one first."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check_server(request)
    known_parameters(request, set())
    found = await benches.read(context.pools.rest)
    return answer(b'"benches":%b' % encode([_shown(one) for one in found]), began)


def _shown(one: Bench) -> BenchShown:
    times = {name: int(getattr(one, name).timestamp() * 1000) for name in ("started_at", "finished_at")}
    return BenchShown(**{**msgspec.structs.asdict(one), **times, "id": str(one.id)})
