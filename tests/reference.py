"""Pages that are made of what the code says: `make reference` writes them anew, and a test compares them.

docs/errors.md is of app/errors.py, docs/http.md of the OpenAPI document and what its routes declare,
docs/sql-contract.md of docs/schema.sql; parts of docs/semantics.md, of docs/configuration.md and of the client of the
settings of topics.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from app import errors
from tests import examples, routes, settings

DOCS: Final = Path(__file__).parents[1] / "docs"
MADE: Final = "<!-- Made by `make reference`, never by hand. -->\n"
# Errors of routes that the messages dialect alone has.
OF_MESSAGES: Final = {"invalid_time", "not_replayable", "outside_window"}
# What routes are about, by their tag, in the order of use.
SUBJECTS: Final = {
    "queue": "Enqueue, claim, settle",
    "jobs": "Jobs",
    "dead_letters": "Failed jobs and dead letters",
    "explain": "Why a job is not running",
    "results": "Results",
    "logs": "Logs: read and watch",
    "topics": "Topics",
    "stats": "Statistics",
    "messages": "The messages dialect",
    "ingest": "Ingestion",
    "user_events": "Users' events",
    "schedules": "Schedules",
    "people": "Keys",
    "saved_views": "Saved views",
    "audit": "The audit trail",
    "health": "Health and metrics",
    "database": "What holds the database up",
    "upkeep": "Reapers",
}

ERRORS: Final = (
    MADE
    + """
# Errors

Every error that a caller can be answered with. Its code is for programs and does not change; its text is for people and
may. The v0 dialect, and all paths outside `/api`, answer `{"error": {"code": …, "message": …, "detail": {…}}}`, with a
detail where there is something to name; the [messages dialect](messages.md#conventions) answers
`{"error": message, "code": code}`.

| code | status | when | `detail` |
|---|---|---|---|
"""
)
AFTER_ERRORS: Final = """
- A status with *again* comes with a `Retry-After` in seconds: wait for so long, and repeat the call.
- Where too many calls wait for one verb of one topic, v0 says `throttled` (429), and the messages dialect `not_ready`
  (503).
- [Section 23](semantics.md#23-what-a-503-means) says what may have happened after a 503, and which calls are safe to
  repeat.
- What the [Python package](sdk.md#errors) raises for each, and what it tries again by itself, stands there.
- `invalid_time`, `not_replayable` and `outside_window` are the messages dialect's alone: v0 has no replay.
"""
HTTP: Final = (
    MADE
    + """
# HTTP reference

Every route: what it does, the scopes that a [key](keys.md#scopes) needs, the statuses that it may answer with, and a
link to the page that has it with a command to try. [routes.txt](routes.txt) has bodies and answers field by field, and
`GET /openapi.json` of a service has them for programs. [errors.md](errors.md) says what a code means.

Any route may also answer 400 (no sense), 401 and 403 (sign-in, scopes), 408, 413, 414, 415 and 431
([limits on input](semantics.md#22-limits-on-input)), 429 (too much) and 503 (not now).
"""
)
SQL: Final = (
    MADE
    + """
# SQL contract

What SQL users may write and read, as it is in the schema; [sql.md](sql.md) says what each is for, with examples. It
changes by additions only. [schema.sql](schema.sql) has all the rest, which may be read and is no such promise.
"""
)
FUNCTIONS: Final = ("enqueue", "complete", "assert_lease")
OWN: Final = {"checked", "place"}  # columns of the inbox that are the service's
EVERYWHERE: Final = {"400", "401", "403", "408", "413", "414", "415", "429", "431", "503"}


def pages() -> dict[Path, str]:
    """What each page should be."""
    whole = {DOCS / "errors.md": errors_page(), DOCS / "http.md": http_page(), DOCS / "sql-contract.md": sql_page()}
    return whole | settings.pages()


def every(error: type[errors.HoldfastError]) -> Iterator[type[errors.HoldfastError]]:
    """It and all that are made of it, but those that share a code with the one they are made of."""
    yield error
    for one in error.__subclasses__():
        yield from (other for other in every(one) if other.code != error.code)


def errors_page() -> str:
    found = sorted(every(errors.HoldfastError), key=lambda error: (error.status, error.code))
    return ERRORS + "".join(map(error_row, found)) + AFTER_ERRORS


def error_row(error: type[errors.HoldfastError]) -> str:
    """Of the first paragraph of its docstring: when it is answered, and after "Detail:" what its detail holds."""
    first = inspect.cleandoc(error.__doc__ or "").partition("\n\n")[0]
    when, _, detail = " ".join(first.split()).partition(" Detail: ")
    assert when, f"{error.__name__} does not say when it is answered"
    status = f"{error.status}{', again' if error.retry_after else ''}"
    return f"| `{error.code}` | {status} | {when} | {detail.removesuffix('.')} |\n"


def http_page() -> str:
    scopes = routes.scopes()
    tables: dict[str, list[str]] = {tag: [] for tag in SUBJECTS}
    for path, methods in routes.document()["paths"].items():
        for method, route in methods.items():
            needs = scopes[method.upper(), path]
            tables[route["tags"][0]].append(route_row(method.upper(), path, route, needs))
    text = HTTP
    for tag, rows in ((tag, rows) for tag, rows in tables.items() if rows):
        text += f"\n## {SUBJECTS[tag]}\n\n| route | what it does | scopes | answers |\n|---|---|---|---|\n"
        text += "".join(rows)
    return text


def route_row(method: str, path: str, route: dict[str, Any], scopes: str) -> str:
    what = re.split(r"(?<=[.?])\s", " ".join(route["description"].split()), maxsplit=1)[0]
    page = examples.page_of(f"{method} {path}").removeprefix("docs/")
    answers = ", ".join(sorted(set(route["responses"]) - EVERYWHERE))
    return f"| [`{method} {path}`]({page}) | {what} | {scopes} | {answers} |\n"


def sql_page() -> str:
    schema = (DOCS / "schema.sql").read_text()
    text = SQL + "\n## Functions\n\n```sql\n"
    for name in FUNCTIONS:
        for words, answers in re.findall(
            rf"^CREATE FUNCTION holdfast\.{name}\((.*)\) RETURNS (\w+)$", schema, re.MULTILINE
        ):
            parts = re.split(r", (?=\"?\w+\"? \w)", re.sub(r" DEFAULT NULL::[a-z ]+", " DEFAULT NULL", words))
            text += f"holdfast.{name}(\n    " + ",\n    ".join(parts) + f"\n) RETURNS {answers}\n\n"
    text = text.rstrip() + "\n```\n\n## holdfast.inbox\n\n| column | type | bounds |\n|---|---|---|\n"
    [inbox] = re.findall(r"^CREATE UNLOGGED TABLE holdfast\.inbox \((.*?)^\)", schema, re.MULTILINE | re.DOTALL)
    bounds = dict(re.findall(r'CONSTRAINT "(\w+): ([^"]+)" CHECK', inbox))
    for column, kind in re.findall(r'^ {4}("?\w+"?) ([a-z]+(?: with time zone)?)', inbox, re.MULTILINE):
        if column not in OWN:
            text += f"| `{column}` | {kind} | {bounds.get(column.strip(chr(34)), '')} |\n"
    [view] = re.findall(r"^CREATE VIEW holdfast\.messages AS\n(.*?)\n   FROM ", schema, re.MULTILINE | re.DOTALL)
    columns = re.findall(r"(\w+)(?:,\n|,?\Z)", view)
    return f"{text}\n## holdfast.messages\n\n" + ", ".join(f"`{column}`" for column in columns) + ". Read-only.\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path.relative_to(DOCS.parent))
