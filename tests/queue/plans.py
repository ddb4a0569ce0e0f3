"""Plans as PostgreSQL runs them: a prepared statement is explained with its buffers, and taken apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.queue.calls import Session
from tests.queue.statements import Statement

Node = dict[str, Any]
CHANGES = {"ModifyTable", "LockRows"}
SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Tid Scan", "Bitmap Heap Scan", "Bitmap Index Scan"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that was run."""

    root: Node

    def nodes(self) -> Iterator[Node]:
        """All nodes."""
        yield from _walk(self.root)

    def kinds(self) -> set[str]:
        """The kinds of nodes."""
        return {node["Node Type"] for node in self.nodes()}

    def indexes(self, table: str = "jobs") -> set[str]:
        """The indexes of a table that it walks."""
        names = {node["Index Name"] for node in self.nodes() if "Index Name" in node}
        return {name for name in names if name.startswith(f"{table}_")}

    def changed_by(self) -> set[str]:
        """How it finds the rows that it updates or deletes."""
        return {
            node["Node Type"]
            for change in self.nodes()
            if change["Node Type"] == "ModifyTable" and change["Operation"] in {"Update", "Delete"}
            for node in _walk(change)
            if node["Node Type"] in SCANS and node.get("Relation Name") == "jobs"
        }

    def sorted_rows(self) -> int:
        """The most rows that it sorts."""
        return max((int(n["Actual Rows"]) for n in self.nodes() if n["Node Type"] == "Sort"), default=0)

    def most_rows(self) -> int:
        """The most rows that a node looks at, those that it leaves out included."""
        left_out = "Rows Removed by Filter", "Rows Removed by Join Filter"
        return max(
            int((node["Actual Rows"] + sum(node.get(name, 0) for name in left_out)) * node["Actual Loops"])
            for node in self.nodes()
        )

    def met(self) -> int:
        """The jobs that it finds by its indexes."""
        return sum(
            round(node["Actual Rows"] * node["Actual Loops"])
            for node in self.nodes()
            if node.get("Index Name", "").startswith("jobs_")
        )

    def all_pages(self) -> int:
        """The pages that it looks at, those of functions that it calls included."""
        return _pages(self.root)

    def pages(self) -> int:
        """The pages that it looks at: of each scan, and of each change apart from what feeds it.

        A node that reads another's rows (a join, a CTE scan) is left out, as its figure holds the other's.
        """
        total = 0
        for node in self.nodes():
            if node["Node Type"] in SCANS:
                total += _pages(node)
            elif node["Node Type"] in CHANGES:
                total += max(0, _pages(node) - sum(map(_pages, _inputs(node))))
        return total


async def prepare(db: Session, statement: Statement) -> None:
    """Prepare it under its own name; it is not planned before its first run."""
    await db.execute(f"PREPARE {_name(statement)} AS {statement.text}")


async def rows(db: Session, statement: Statement, *arguments: object) -> int:
    """Run what was prepared: how many rows it answers."""
    return len(await db.fetch(call(statement, arguments)))


async def explain(db: Session, statement: Statement, *arguments: object) -> Plan:
    """Run what was prepared, for its plan; what it changes is undone."""
    transaction = db.transaction()
    await transaction.start()
    try:
        answer = await db.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call(statement, arguments)}")
    finally:
        await transaction.rollback()
    return Plan(json.loads(answer)[0]["Plan"])


def call(statement: Statement, arguments: Sequence[object]) -> str:
    """The statement that runs what was prepared."""
    assert len(arguments) == len(statement.parameters)
    return f"EXECUTE {_name(statement)} ({', '.join(map(_literal, arguments))})"


def _name(statement: Statement) -> str:
    """A name of its own: two packages may have a statement of one name."""
    return f"{statement.package}_{statement.name}"


def _literal(value: object) -> str:
    """A value in SQL, of unknown type where it is not a number, so that the parameter's type decides."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int):
        return str(value)
    return "'" + _text(value).replace("'", "''") + "'"


def _text(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case list():
            return "{" + ",".join(_text(element) or '""' for element in value) + "}"
        case bytes():
            return '"\\\\x' + value.hex() + '"'
        case datetime():
            return "-infinity" if value == datetime.min else value.isoformat()
        case timedelta():
            return f"{value.total_seconds()} seconds"
        case _:
            return str(value)


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", []):
        yield from _walk(child)


def _inputs(node: Node) -> list[Node]:
    return [child for child in node.get("Plans", []) if child.get("Parent Relationship") not in {"InitPlan", "SubPlan"}]


def _pages(node: Node) -> int:
    return int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"])
