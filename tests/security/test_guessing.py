"""Guessing: how often somebody may, and what a refusal tells, by its words or by the time it takes."""

from __future__ import annotations

import ast
import gc
import math
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.base.keys import digest_of
from tests.api.keyring import Services, client, make
from tests.api.people import PASSWORD, add_user, basic

if TYPE_CHECKING:
    from tests.conftest import Running

ROOT = Path(__file__).parents[2]
SAMPLES = 1_500
TOLD = 4.5  # |t| of Welch's test, from which on two means count as different
ROUNDS = 4  # a leak is there in each of them; what else the machine does is not


def t_of(one: Sequence[float], other: Sequence[float]) -> float:
    """Welch's t of the quicker nine tenths: the rest is what else the machine does."""
    a, b = (sorted(each)[: len(each) * 9 // 10] for each in (one, other))
    spread = math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))
    return (statistics.fmean(a) - statistics.fmean(b)) / spread if spread else 0.0


def tells(refuses: Callable[[bytes], object], first: Sequence[bytes], last: Sequence[bytes]) -> bool:
    """Whether it takes measurably another time to refuse secrets that differ in their first byte, and in their last.

    Taken in turns, so that a machine that is slower for a while is so for both.
    """
    gc.collect()
    for _ in range(ROUNDS):
        took: tuple[list[float], list[float]] = [], []
        for n in range(SAMPLES):
            for which in (0, 1) if n % 2 else (1, 0):
                given = (first, last)[which][n % len(first)]
                began = time.perf_counter()
                refuses(given)
                took[which].append(time.perf_counter() - began)
        if abs(t_of(*took)) < TOLD:
            return False
    return True


def wrong(secret: bytes) -> tuple[list[bytes], list[bytes]]:
    """Secrets that are wrong in their first byte, and such that are in their last. Many: of a few, more on one side may
    have digests that share a place in a table with another."""
    first = [bytes([byte]) + secret[1:] for byte in range(256) if byte != secret[0]]
    last = [secret[:-1] + bytes([byte]) for byte in range(256) if byte != secret[-1]]
    return first, last


async def test_of_many_guesses_ten_are_looked_at(
    service: Running, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a minute, of a name from an address, whichever way they come by, and by whichever process; the right password
    is one guess too many."""
    other = await services.start(api_keys="root", bcrypt_cost=10)
    looked = 0
    real = service.context.access.sessions.passwords.matches

    async def counted(kept: str | None, password: str) -> bool:
        nonlocal looked
        looked += 1
        return await real(kept, password)

    for each in (service, other):
        monkeypatch.setattr(each.context.access.sessions.passwords, "matches", counted)
    async with client(service, "root") as root, client(service) as one, client(other) as two:
        name = (await add_user(root, is_admin=True))["username"]
        statuses: dict[int, int] = {}
        for n in range(60):
            guess, http = f"a guess of some length {n}", two if n % 2 else one
            if n % 3 == 0:
                answer = await http.post("/api/auth/login", json={"username": name, "password": guess})
            elif n % 3 == 1:
                answer = await http.get("/v0/topics", headers=basic(name, guess))
            else:
                answer = await http.post("/admin/sign-in", data={"name": name, "secret": guess})
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        late = await one.post("/api/auth/login", json={"username": name, "password": PASSWORD})
    minutes = statuses[401] // 10  # one, unless this machine takes longer
    assert statuses[401] + statuses[429] == 60
    assert statuses[401] == looked <= 20
    assert late.status_code == 429 or minutes > 1
    assert PASSWORD not in late.text


@pytest.mark.slow  # each time; that secrets are compared by hmac.compare_digest is looked at below
async def test_a_wrong_key_is_refused_as_quickly_wherever_it_is_wrong(service: Running) -> None:
    """And a comparison that stops at the first difference would be seen."""
    known = secrets.token_hex(256).encode()

    def leaks(given: bytes) -> bool:
        return all(a == b for a, b in zip(given, known, strict=True))

    assert tells(leaks, *wrong(known))
    async with client(service, "root") as http:
        secret = (await make(http, "k"))["secret"].encode()
    directory = service.context.access.directory
    assert directory.find(digest_of(secret)) is not None
    assert not tells(lambda given: directory.find(digest_of(given)), *wrong(secret))


# Who compares secrets, and by what. A password goes to bcrypt, a token to PyJWT.
COMPARE = {
    "app/http/signin/directory.py": 1,  # an API key's digest
    "app/http/signin/sessions.py": 1,  # the seal of a key in a session
    "app/pages/session.py": 1,  # a form's proof
    "app/features/sqs/signature.py": 1,  # a request's signature
}
WORDS = {"secret", "digest", "token", "password", "proof", "seal", "signature", "hash", "password_hash"}
# Nobody guesses what these compare: the mask of a secret, one kept secret with another, what an operator has typed
# twice, and a file of the demonstration.
OTHERS = {
    "app/kernel/topics/webhooks.py",
    "app/http/signin/directory.py",
    "app/http/signin/commands.py",
    "app/demo/files.py",
    "app/pages/screens.py",  # what a page shows, and has shown
}


def test_secrets_are_compared_in_constant_time() -> None:
    """By hmac.compare_digest; `==` between two things of such a name would be a find."""
    used: dict[str, int] = {}
    found = set()
    for path in (ROOT / "app").rglob("*.py"):
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "compare_digest":
                used[name] = used.get(name, 0) + 1
            if isinstance(node, ast.Compare) and all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
                sides = (node.left, *node.comparators)
                if any(_name(side) in WORDS for side in sides):
                    found.add(name)
    assert used == COMPARE
    assert found == OTHERS, "compares what may be secret"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
