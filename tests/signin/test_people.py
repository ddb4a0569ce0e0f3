"""Grants as keys: which topics, for which actions, and what is left out."""

from __future__ import annotations

import pytest

from app.base.keys import Key, Scope
from app.errors import Forbidden, InvalidRequest
from app.http.signin.people import Right, User, check_pattern

R, W, D, A = Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN


def user(*grants: str, is_admin: bool = False) -> User:
    """`grants` such as "read mail.*"; with "hidden" behind it, one that hides payloads."""
    given = [grant.split(" ") for grant in grants]
    triples = [(Right(one[0]), one[1], "hidden" in one[2:]) for one in given]
    return User("id", "name", 1, is_admin=is_admin, grants=triples)


@pytest.mark.parametrize(
    ("grants", "scopes", "consumes", "covered", "not_covered"),
    [
        (["read *"], R, False, ["a", "mail.x"], []),
        (["read mail.*"], R, False, ["mail.x", "mail.x.dlq"], ["mail", "email.x", "mailx"]),
        (["read mail"], R, False, ["mail"], ["mail.x", "mailbox", "mai"]),
        (["read mail", "read post.*"], R, False, ["mail", "post.x"], ["post"]),
        (["read *", "write mail.*"], R | W, False, ["mail.x"], ["other"]),
        (["read mail.*", "write mail.x"], R | W, False, ["mail.x"], ["mail.y", "mail.x.y"]),
        (["write mail.*"], R | W, True, ["mail.x"], ["other"]),
        (["consume mail", "write post"], R | W, True, ["mail", "post"], ["other"]),
        (["admin mail.*"], A | D, False, ["mail.x"], ["other"]),
    ],
)
def test_a_key_is_to_the_topics_for_which_all_is_granted(
    grants: list[str], scopes: Scope, consumes: bool, covered: list[str], not_covered: list[str]
) -> None:
    key = user(*grants).key(scopes, consumes=consumes)
    assert scopes in key.scopes
    assert [topic for topic in covered + not_covered if key.covers(topic)] == covered


@pytest.mark.parametrize(
    ("grants", "scopes", "consumes"),
    [
        ([], R, False),
        (["read *"], W, False),
        (["consume *"], W, False),
        (["consume *"], R, False),
        (["write *"], R, False),
        (["read *"], R | W, True),
        (["read *", "write *"], A, False),
        (["read a.*", "write b.*"], R | W, False),  # of no topic both: an empty list must not mean every topic
        (["read a", "write a.*"], R | W, False),
        (["write * hidden"], R | W, True),  # who takes a job sees what is in it
    ],
)
def test_what_is_granted_nowhere_is_refused(grants: list[str], scopes: Scope, consumes: bool) -> None:
    with pytest.raises(Forbidden):
        user(*grants).key(scopes, consumes=consumes)


def test_an_admin_bypasses_grants() -> None:
    key = user(is_admin=True).key(R | W | D | A)
    assert (key.scopes, key.prefixes) == (Scope.ALL, ())


def test_a_user_makes_keys_within_what_is_granted_to_them() -> None:
    key = user("admin mail.*", "read *", "write mail.x").key(A)
    assert key.may_grant(R | A | D, ["mail.y"])
    assert not key.may_grant(R, ["other"])
    assert not key.may_grant(R, [])
    assert not key.may_grant(W, ["mail.x"])  # less than all that it is to


@pytest.mark.parametrize(
    ("grants", "seen", "hidden"),
    [
        (["read *"], ["a"], []),
        (["read * hidden"], [], ["a", "mail.x"]),
        (["read * hidden", "read mail.*"], ["mail.x"], ["a", "mail"]),
        (["read * hidden", "consume mail"], ["mail"], ["a", "mail.x"]),
        (["read * hidden", "write mail hidden"], [], ["mail"]),
    ],
)
def test_payloads_are_seen_where_one_grant_lets(grants: list[str], seen: list[str], hidden: list[str]) -> None:
    key = user(*grants).key(R)
    assert [topic for topic in seen + hidden if key.sees_payloads(topic)] == seen


def test_nobody_makes_a_key_that_sees_more_than_they_do() -> None:
    key = user("admin * hidden", "read * hidden", "read mail.*").key(A | R)
    assert key.may_grant(R, [], hides_payloads=True)
    assert not key.may_grant(R, [], hides_payloads=False)
    assert key.may_grant(R, ["mail.x"], hides_payloads=False)
    assert not key.may_grant(R, ["mail.x", "post"], hides_payloads=False)
    assert not Key(b"", Scope.ALL, (), hides_payloads=True).may_grant(R, ["mail"], hides_payloads=False)


def test_a_whole_name_grants_no_start_of_names() -> None:
    key = Key(b"", R, ("mail$",))
    assert key.covers("mail")
    assert key.may_grant(R, ["mail$"])
    assert not key.may_grant(R, ["mail"])
    assert not key.may_grant(R, ["mail."])


def test_a_pattern_is_everything_a_start_or_a_name() -> None:
    for pattern in ("*", "a", "a.*", "mail.in.*", "a" * 255, f"{'a' * 253}.*"):
        assert check_pattern(pattern) == pattern
    for pattern in ("", "**", ".*", "a*", "*.a", "a.*.b", "a b", "a\n", "a$", "a" * 256):
        with pytest.raises(InvalidRequest):
            check_pattern(pattern)
