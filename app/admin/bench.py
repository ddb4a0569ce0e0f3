"""/admin/bench: what this instance reaches, measured on demand, and what it reached before."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.admin.forms import FAULTS, Form, ms, refused
from app.admin.permissions import MEASURE, allows
from app.admin.render import page
from app.admin.session import fields_of
from app.edge import bench
from app.edge.bench import VERB_SECONDS, Asked
from app.edge.context import context_of
from app.errors import InvalidRequest
from app.queue import benches

WORDS = {"jobs": "Jobs", "batch": "Jobs a call", "clients": "Calls at once", "size": "Bytes of a payload"}


async def show(request: Request) -> Response:
    """The page."""
    return await _page(request, Form())


async def run(request: Request) -> Response:
    """Measure, and show it; or the form again. Raises Unavailable, and what the verbs raise."""
    context, fields = context_of(request), await fields_of(request)
    try:
        await bench.run(context, _asked(fields), context.access.actor(request))
    except FAULTS as error:
        return await _page(request, refused(fields, error), error.status)
    return RedirectResponse("/admin/bench", 303)


async def _page(request: Request, form: Form, status: int = 200) -> Response:
    found = await benches.read(context_of(request).pools.rest)
    plain = Asked()
    return page(
        request,
        "bench.html",
        status,
        title="Benchmarks",
        rows=[(one, ms(one.started_at)) for one in found],
        form=form,
        fields=[(name, word, getattr(plain, name)) for name, word in WORDS.items()],
        most_seconds=round(3 * VERB_SECONDS),
        may_measure=allows(request, MEASURE),
    )


def _asked(fields: dict[str, str]) -> Asked:
    given = {name: fields.get(name, "").strip() for name in WORDS}
    for name, text in given.items():
        if not (text.isascii() and text.isdecimal() and len(text) <= 6):
            raise InvalidRequest("It is a whole number.", {"field": name})
    return Asked(**{name: int(text) for name, text in given.items()})
