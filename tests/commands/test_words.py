"""Words of `keys` and `users` that make no sense, and their help."""

from __future__ import annotations

import pytest

from tests.api.people import PASSWORD
from tests.commands.conftest import Run


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["keys", "add", "k"], 2, "--scopes"),
        (["keys", "add", "k", "--scopes", "fly"], 2, "'fly' is not a scope"),
        (["keys", "add", "k", "--scopes", ""], 1, "scopes must have"),
        (["keys", "add", "k", "--scopes", "read", "--prefixes", "a b"], 1, "No topic's name can start with"),
        (["keys", "add", "k", "--scopes", "read", "--expires-in", "soon"], 2, "is not a length of time"),
        (["keys", "rotate", "key_0000000000000000", "--grace", "8d"], 2, "between"),
        (["keys", "rotate", "key_0000000000000000"], 1, "no such key"),
        (["keys", "revoke", "x"], 1, "no such key"),
        (["keys", "paint"], 2, "paint"),
        (["keys"], 2, "command"),
        (["users", "add", "a:b"], 1, "without a colon"),
        (["users", "add", "u", "--password", "p"], 2, "--password"),
        (["users", "add", "u", PASSWORD], 2, "unrecognized"),
        (["users", "passwd", "nobody"], 1, "no user 'nobody'"),
        (["users", "delete", "nobody"], 1, "no user 'nobody'"),
        (["users", "grant", "nobody", "read"], 1, "no user 'nobody'"),
        (["users", "grant", "nobody", "fly"], 2, "fly"),
        (["users", "paint"], 2, "paint"),
        (["users"], 2, "command"),
    ],
)
async def test_nonsense_is_explained(run: Run, words: list[str], code: int, why: str) -> None:
    ended = await run(*words, stdin=PASSWORD)
    assert (ended.code, ended.out) == (code, "")
    assert why in ended.err


@pytest.mark.parametrize(("password", "why"), [("", "at least 12"), ("x" * 73, "at most 72 bytes")])
async def test_a_password_has_a_length(run: Run, password: str, why: str) -> None:
    ended = await run("users", "add", "u", stdin=password)
    assert ended.code == 1
    assert why in ended.err


async def test_help_names_the_commands_and_how_secrets_are_given(run: Run) -> None:
    for words, said in (
        (["keys"], "add list rotate revoke HOLDFAST_DATABASE_URL"),
        (["keys", "add"], "--expires-in"),
        (["users"], "add list passwd delete grant revoke HOLDFAST_DATABASE_URL stdin"),
        (["users", "grant"], "mail.*"),
    ):
        ended = await run(*words, "--help")
        assert ended.code == 0
        assert all(word in ended.out for word in said.split())
