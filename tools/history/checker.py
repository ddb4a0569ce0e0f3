"""What a history must not show: `check`. Pure; each rule is a function, and has bad histories in tests/history.

Calls in doubt may have been done, at once or later. The rules give them every benefit, and no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tools.history import rules_of_groups, rules_of_jobs, rules_of_leases, rules_of_ledger, rules_of_service
from tools.history.facts import Facts
from tools.history.history import History

RULES: Final[tuple[Callable[[Facts], Iterable[str]], ...]] = (
    rules_of_jobs.lost,
    rules_of_jobs.invented,
    rules_of_jobs.duplicated,
    rules_of_jobs.torn,
    rules_of_jobs.misplaced,
    rules_of_jobs.outlived,
    rules_of_jobs.forgotten,
    rules_of_jobs.gapped,
    rules_of_leases.reused,
    rules_of_leases.skipped,
    rules_of_leases.overdelivered,
    rules_of_leases.mistimed,
    rules_of_leases.early,
    rules_of_leases.late,
    rules_of_leases.undone,
    rules_of_leases.stale,
    rules_of_leases.unknown,
    rules_of_leases.refused,
    rules_of_groups.overlapped,
    rules_of_groups.disordered,
    rules_of_ledger.impossible,
    rules_of_ledger.unlogged,
    rules_of_ledger.miscounted,
    rules_of_service.unavailable,
    rules_of_service.surprised,
    rules_of_service.deadlocked,
    rules_of_service.left,
    rules_of_service.damaged,
)


def check(history: History) -> list[str]:
    """Every violation, one line each; none for a history as promised."""
    facts = Facts(history)
    return [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(facts)]
