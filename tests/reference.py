"""Pages generated from the code: `make reference` writes them, and a test compares them.

docs/errors.md comes from app/errors.py, docs/http.md from the OpenAPI document and the routes' declarations, a part of
docs/sql.md from docs/schema.sql, and parts of docs/semantics.md, docs/configuration.md and the client from the settings
of topics.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from app import errors
from tests import examples, routes, settings

DOCS: Final = Path(__file__).parents[1] / "docs"
MADE: Final = "<!-- Made by `make reference`, never by hand. -->\n"
# Errors that only the messages dialect has.
OF_MESSAGES: Final = {"invalid_time", "not_replayable", "outside_window"}
# The section of a page that has more subjects than its routes.
SECTIONS: Final = {"operations/processes.md": "#reapers"}
# Headings by the routes' tags, in the order of use.
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
    "database": "Holders of the horizon",
    "upkeep": "Reapers",
}

ERRORS: Final = (
    MADE
    + """
# Errors

Look up an error by its code: its status, when it happens, and what its `detail` holds.

```bash
curl http://127.0.0.1:8080/v0/topics/nowhere
```
```
404
{"error": {"code": "topic_not_found", "message": "There is no topic 'nowhere'.",
 "docs": "docs/errors.md#topic_not_found", "detail": {"topic": "nowhere"}}}
```

- The v0 dialect, and all paths outside `/api`, answer with `error`, as above. `detail` can be absent.
- The [messages dialect](messages.md#conventions) answers `{"error": message, "code": code, "docs": link}`.
- `code` is for programs and does not change. `message` is for people and can change.
- `docs` links to the error's row on this page. It is relative to the repository of this version, as the service does
  not serve the manual: append it to the address where you keep the repository.

| code | status | when | `detail` |
|---|---|---|---|
"""
)
AFTER_ERRORS: Final = """
- *again*: the answer has a `Retry-After` in seconds. Wait that long and repeat the call.
- If too many calls wait for one verb of one topic, v0 answers `throttled` (429) and messages `not_ready` (503).
- After a 503 a call may have happened: [section 23](semantics.md#23-what-a-503-means) says which calls you can repeat.
- The [Python package](sdk.md#errors) has an exception for each, and repeats some calls by itself.
- Only the messages dialect has `invalid_time`, `not_replayable` and `outside_window`: v0 has no replay.
"""
HTTP: Final = (
    MADE
    + """
# HTTP reference

Every route: the scopes that a [key](keys.md#scopes) needs, its statuses, and a link to a page with a command to try.

```bash
curl http://127.0.0.1:8080/openapi.json
```

[routes.txt](routes.txt) has bodies and answers field by field; `GET /openapi.json` has them for programs.
[errors.md](errors.md) explains the codes.

Any route can also answer 400 (invalid request), 401 and 403 (sign-in, scopes), 408, 413, 414, 415 and 431
([limits on input](semantics.md#22-limits-on-input)), 429 (a limit) and 503 (not available right now).
"""
)
BEGIN_SQL: Final = "<!-- made by `make reference` from docs/schema.sql -->\n\n"
END_SQL: Final = "\n<!-- end -->\n"
FUNCTIONS: Final = ("enqueue", "complete", "assert_lease")
OWN: Final = {"checked", "place"}  # columns of the inbox that are the service's
EVERYWHERE: Final = {"400", "401", "403", "408", "413", "414", "415", "429", "431", "503"}


def pages() -> dict[Path, str]:
    """Each page with its text."""
    sql = (DOCS / "sql.md").read_text()
    whole = {
        DOCS / "errors.md": errors_page(),
        DOCS / "http.md": http_page(),
        DOCS / "sql.md": settings.between(sql, BEGIN_SQL, END_SQL, sql_contract()),
    }
    return whole | settings.pages()


def every(error: type[errors.HoldfastError]) -> Iterator[type[errors.HoldfastError]]:
    """The error and its subclasses, except those with the code of their base."""
    yield error
    for one in error.__subclasses__():
        yield from (other for other in every(one) if other.code != error.code)


def errors_page() -> str:
    found = sorted(every(errors.HoldfastError), key=lambda error: (error.status, error.code))
    return ERRORS + "".join(map(error_row, found)) + AFTER_ERRORS


def error_row(error: type[errors.HoldfastError]) -> str:
    """From the first paragraph of its docstring: when it happens, and after "Detail:" what its detail holds."""
    first = inspect.cleandoc(error.__doc__ or "").partition("\n\n")[0]
    when, _, detail = " ".join(first.split()).partition(" Detail: ")
    assert when, f"{error.__name__} does not say when it is answered"
    status = f"{error.status}{', again' if error.retry_after else ''}"
    return f'| `{error.code}` <a id="{error.code}"></a> | {status} | {when} | {detail.removesuffix(".")} |\n'


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
    page += SECTIONS.get(page, "")
    answers = ", ".join(sorted(set(route["responses"]) - EVERYWHERE))
    return f"| [`{method} {path}`]({page}) | {what} | {scopes} | {answers} |\n"


def sql_contract() -> str:
    """The functions, the inbox's columns with their bounds, and the view's columns."""
    schema = (DOCS / "schema.sql").read_text()
    text = "```\n"
    for name in FUNCTIONS:
        found = re.findall(rf"^CREATE FUNCTION holdfast\.{name}\((.*)\) RETURNS (\w+)$", schema, re.MULTILINE)
        forms = [
            re.split(r", (?=\"?\w+\"? \w)", re.sub(r" DEFAULT NULL::[a-z ]+", " = NULL", words)) for words, _ in found
        ]
        parts = [" or ".join(dict.fromkeys(same)) for same in zip(*forms, strict=True)]
        text += f"holdfast.{name}(\n    " + ",\n    ".join(parts) + f"\n) RETURNS {found[0][1]}\n\n"
    text = text.rstrip() + "\n```\n\n| column of `holdfast.inbox` | type | bounds |\n|---|---|---|\n"
    [inbox] = re.findall(r"^CREATE UNLOGGED TABLE holdfast\.inbox \((.*?)^\)", schema, re.MULTILINE | re.DOTALL)
    bounds = dict(re.findall(r'CONSTRAINT "(\w+): ([^"]+)" CHECK', inbox))
    for column, kind in re.findall(r'^ {4}("?\w+"?) ([a-z]+(?: with time zone)?)', inbox, re.MULTILINE):
        if column not in OWN:
            text += f"| `{column}` | {kind} | {bounds.get(column.strip(chr(34)), '')} |\n"
    [view] = re.findall(r"^CREATE VIEW holdfast\.messages AS\n(.*?)\n   FROM ", schema, re.MULTILINE | re.DOTALL)
    columns = ", ".join(f"`{column}`" for column in re.findall(r"(\w+)(?:,\n|,?\Z)", view))
    return f"{text}\nColumns of `holdfast.messages`:\n\n{chr(10).join(textwrap.wrap(columns, 118))}\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path.relative_to(DOCS.parent))
