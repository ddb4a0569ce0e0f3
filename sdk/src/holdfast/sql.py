"""Builds calls of the service's SQL functions, which your own driver makes in your own transaction.

from holdfast import sql

async with connection.transaction():  # asyncpg
    await connection.execute("INSERT INTO orders VALUES ($1)", 42)
    await connection.fetchval(*sql.enqueue("shipping", {"order": 42}).asyncpg)

docs/sql.md. Nothing here imports a driver or does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, LiteralString
from uuid import UUID

from holdfast import _trace, errors
from holdfast._body import content_of, moment_of
from holdfast._wire import encode as encoded
from holdfast._worker import running
from holdfast._worker.payloads import Encoder, plain, sent

if TYPE_CHECKING:
    from sqlalchemy import TextClause

__all__ = ["Call", "assert_lease", "complete", "enqueue", "seq_of"]

_SCHEMA: Final = "holdfast"


class Call:
    """A call of one of the service's SQL functions. Each property has the arguments for a driver's methods:
    `connection.fetchval(*call.asyncpg)`, `connection.execute(*call.psycopg)`, `session.scalar(*call.sqlalchemy)`. The
    last two work with async and sync connections and sessions."""

    def __init__(self, function: str, arguments: Mapping[str, tuple[str, Any]], job_id: str = "") -> None:
        """`arguments`: by name, the types to cast to (in order, separated by spaces) and the value."""
        self._function = function
        self._arguments = {name: (kinds, value) for name, (kinds, value) in arguments.items() if value is not None}
        self._job_id = job_id

    def __repr__(self) -> str:
        return f"<{self._statement(lambda _, name: f':{name}')}>"

    @property
    def asyncpg(self) -> tuple[LiteralString, *tuple[Any, ...]]:
        return (self._statement(lambda place, _: f"${place}"), *self._values())

    @property
    def psycopg(self) -> tuple[LiteralString, tuple[Any, ...]]:
        return self._statement(lambda _place, _name: "%s"), self._values()

    @property
    def sqlalchemy(self) -> tuple[TextClause, dict[str, Any]]:
        from sqlalchemy import text  # noqa: PLC0415 - optional dependency

        values = {name: value for name, (_, value) in self._arguments.items()}
        return text(self._statement(lambda _, name: f":{name}")), values

    def explain(self, error: BaseException) -> errors.HoldfastError | None:
        """Translate a driver's exception into an error of this package, by its SQLSTATE. None if this call's function
        did not raise it."""
        for found in _causes(error):
            state = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
            if state is not None and self._raised(found):
                return self._named(state, str(found).partition("\n")[0])
        return None

    def _statement(self, placeholder: Callable[[int, str], str]) -> LiteralString:
        """The statement. Casts all parameters, so that the driver's types and JSON codecs don't matter."""
        given = (
            f'"{name}" => {_cast(placeholder(place, name), kinds)}'
            for place, (name, (kinds, _)) in enumerate(self._arguments.items(), 1)
        )
        return f"SELECT {_SCHEMA}.{self._function}({', '.join(given)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(value for _, value in self._arguments.values())

    def _raised(self, error: BaseException) -> bool:
        diagnostics = getattr(error, "diag", error)
        return f"{_SCHEMA}.{self._function}(" in (getattr(diagnostics, "context", None) or "")

    def _named(self, state: str, message: str) -> errors.HoldfastError | None:
        if state == "55000":
            return errors.LeaseLost(self._job_id, message)
        if state not in _STATES:
            return None
        status, code = _STATES[state]
        return errors.status_error(status, code, message, detail={"sqlstate": state})


# docs/sql.md
_STATES: Final[Mapping[str, tuple[int, str]]] = {
    "42704": (404, "topic_not_found"),
    "42809": (409, "not_a_queue"),
    "23514": (400, "invalid_request"),
    "22032": (400, "invalid_request"),
    "22023": (400, "invalid_request"),
    "54000": (400, "payload_too_large"),
    "53400": (422, "topic_full"),
    "0A000": (422, "schema_violation"),
}


def enqueue(
    topic: str,
    data: Any,
    *,
    tag: str | None = None,
    meta: Mapping[str, Any] | None = None,
    priority: int | None = None,
    delay_ms: int | None = None,
    run_at: datetime | None = None,
    ttl_ms: int | None = None,
    max_deliveries: int | None = None,
    key: str | None = None,
    content_type: str | None = None,
    group: str | None = None,
    dedupe_id: str | None = None,
    user_id: str | None = None,
    tenant: str | None = None,
    webhook: str | None = None,
    traceparent: str | None = None,
    encode: Encoder | None = None,
) -> Call:
    """Enqueue a job if and only if your transaction commits. The call returns the job's id, a UUID.

    - data: as for `push`: a dataclass, pydantic model, msgspec struct, JSON value, text or bytes.
    - encode: converts other types to one of these.
    - user_id: inside a handler it defaults to the user of the handler's job.

    The other arguments are those of `topic.enqueue`. Raises TypeError or ValueError if data can't be encoded. For other
    faults the database raises an error, which fails the transaction."""
    payload, kind = content_of(sent(data, content_type, encode), content_type)
    described = {**_trace.context(traceparent), **(meta or {})}
    moment_of(run_at)
    return Call(
        "enqueue",
        {
            "topic": ("text", topic),
            "payload": ("bytea", payload),
            "content_type": ("text", kind),
            "metadata": ("text jsonb", _json(described) if described else None),
            "tag": ("text", tag),
            "priority": ("integer", priority),
            "delay_ms": ("bigint", delay_ms),
            "run_at": ("timestamptz", run_at),
            "ttl_ms": ("bigint", ttl_ms),
            "max_deliveries": ("integer", max_deliveries),
            "key": ("text", key),
            "tenant": ("text", tenant),
            "group": ("text", group),
            "dedupe_id": ("text", dedupe_id),
            "user_id": ("text", user_id or running.user_id()),
            "webhook": ("text", webhook),
        },
    )


def assert_lease(token: str) -> Call:
    """Fail the transaction unless the lease is valid, and lock the job until the transaction ends. `token`: of a
    claimed job or a context."""
    return Call("assert_lease", {"token": ("text", token)}, _job_id(token))


def complete(token: str, *, result: Any = None) -> Call:
    """Ack a job if and only if your transaction commits. Fails the transaction if the lease has ended. `result`: as in
    Result; `topic.result(seq)` returns it.

    In a handler, with the token of its own job, the worker no longer acks the job itself. If the handler returns
    without a committed transaction, the job is returned to the queue."""
    call = Call(
        "complete",
        {"token": ("text", token), "result": ("text json", None if result is None else _json(plain(result)))},
        _job_id(token),
    )
    running.completes(token)
    return call


def seq_of(id: UUID | str) -> int:
    """The seq of a job, from the id that `enqueue` returned. `topic.job` and `topic.result` take it."""
    bits = UUID(str(id)).int
    return (bits >> 64 & 1) << 62 | bits & (1 << 62) - 1


def _json(value: Any) -> str:
    return encoded(value).decode()


def _cast(parameter: str, kinds: str) -> str:
    for kind in kinds.split():
        parameter = f"CAST({parameter} AS {kind})"
    return parameter


def _job_id(token: str) -> str:
    return token.rsplit(":", 2)[-2] if token.count(":") >= 2 else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes. SQLAlchemy has them in `orig`."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = getattr(found, "orig", None) or found.__cause__
