"""What a handler is declared with, and what is refused there."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.base import cron as service_cron
from holdfast import AsyncContext, Queue, Schedule, Worker

NOWHERE = "http://127.0.0.1:1"


def test_a_handler_without_brackets_has_its_functions_name() -> None:
    queue = Queue(NOWHERE)

    @queue.handler
    def mail(_: str) -> None: ...

    @queue.handler()
    async def sms(_: str, context: AsyncContext) -> None: ...

    assert [(one.topic, one.function, one.runs) for one in queue.handlers.values()] == [
        ("mail", mail, "thread"),
        ("sms", sms, "async"),
    ]
    with pytest.raises(ValueError, match="topic 'mail' already has a handler, the function "):
        queue.handler(mail)
    with pytest.raises(ValueError, match="there are no handlers for u"):
        Worker(queue, topics=["u"])


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"pool": "threads"}, ValueError, "pool must be 'thread' or 'process', not 'threads'"),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"retry": 5}, TypeError, "retry must be the seconds before each retry"),
        ({"retry": "10"}, TypeError, "retry must be the seconds before each retry"),
        ({"retry": ("1", "2")}, TypeError, "retry must be the seconds before each retry"),
        ({"retry": (1, 90_000)}, ValueError, "the pauses of retry must be 0 to 86400 seconds"),
        ({"retry": (-1,)}, ValueError, "the pauses of retry must be"),
        ({"retry": (math.inf,)}, ValueError, "the pauses of retry must be"),
        ({"retry": (math.nan,)}, ValueError, "the pauses of retry must be"),
        ({"schedule": "hourly"}, ValueError, "five fields .* and 'hourly' has 1"),
        ({"schedule": ""}, ValueError, "five fields"),
        ({"schedule": "60 * * * *"}, ValueError, "'60' is not a valid minute in the cron expression"),
        ({"schedule": "* * 0 * *"}, ValueError, "'0' is not a valid day of month"),
        ({"schedule": "* * * FOO *"}, ValueError, "'FOO' is not a valid month"),
        ({"schedule": "* * * * 1#6"}, ValueError, "'1#6' is not a valid day of week"),
        ({"schedule": "0 0 30 2 *"}, ValueError, "never due: none of its months has such a day"),
        ({"isolate": "yes"}, TypeError, "isolate must be an Isolation, not 'yes'"),
        ({"concurrency": "x"}, TypeError, "concurrency must be a whole number, not 'x'"),
        ({"concurrency": 0}, ValueError, "concurrency"),
    ],
)
def test_nonsense_is_refused_where_a_handler_is_declared(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    queue = Queue(NOWHERE)
    with pytest.raises(error, match=said):
        queue.handler("t", **options)(lambda _: None)
    assert not queue.handlers


def test_a_built_in_function_is_a_handler_if_its_parameters_are_known() -> None:
    queue, done = Queue(NOWHERE), list[object]()
    queue.handler("t")(done.append)
    assert [(one.topic, one.runs) for one in queue.handlers.values()] == [("t", "thread")]
    with pytest.raises(TypeError, match="has no signature"):
        queue.handler("u")(max)


def test_a_function_that_can_not_be_called_with_a_payload_and_a_context_is_refused() -> None:
    def none() -> None: ...
    def three(a: int, b: int, c: int) -> None: ...
    def required(_: str, *, context: AsyncContext) -> None: ...
    def optional(_: str, *, context: AsyncContext | None = None) -> None: ...
    def short(_: str, *, ctx: AsyncContext | None = None) -> None: ...
    def other(_: str, *, more: int) -> None: ...
    def harmless(_: str, *, more: int = 1) -> None: ...

    def generator(_: Any) -> Iterator[int]:
        yield 1

    async def async_generator(_: Any) -> AsyncIterator[int]:
        yield 1

    queue = Queue(NOWHERE)
    by_keyword = r"takes context as a keyword only: a handler is called as handler\(payload"
    for function, said in (
        (none, "must take a payload, and may take a context after it"),
        (three, "must take a payload, and may take a context after it"),
        (required, by_keyword),
        (optional, by_keyword),
        (short, "takes ctx as a keyword only"),
        (other, "takes more as a keyword only"),
        (generator, "generator"),
        (async_generator, "generator"),
    ):
        with pytest.raises(TypeError, match=said):
            queue.handler("t")(function)
    queue.handler("t")(harmless)


def test_a_schedule_has_a_time_zone_of_ianas_and_says_what_becomes_of_missed_times() -> None:
    assert Schedule("* * * * *", time_zone="Europe/Berlin").time_zone == "Europe/Berlin"
    for name in ("Mars/Olympus", "localtime", "europe/berlin"):
        with pytest.raises(ValueError, match="time_zone must be an IANA time zone"):
            Schedule("* * * * *", time_zone=name)
    missed: Any = "sometimes"
    with pytest.raises(ValueError, match="missed must be 'skip', 'once' or 'all', not 'sometimes'"):
        Schedule("* * * * *", missed=missed)


TAKEN = (
    *("* * * * *", "*/5 0-6,22 * JAN-mar 1-5", "05 4 L * *", "0 0 LW * *", "0 12 * * 5L,1#2", "5/10 * * * SUN"),
    *("0 0 1 1 7", "0 0 29 2 *", "0 0 30 2 1", "0 0 30-31,L 2 *", "0 0 31 2,3 *", "0 0 31 */2 *", "0 0 * * 5-7"),
)
REFUSED = (
    *("*/0 * * * *", "1- * * * *", "5-1 * * * *", "* * * * SAT-SUN", "0 0 LW/2 * *", "0 0 31 apr,06 *"),
    *("0 0 L/3 * *", "0 0 * * 5L/3", "0 0 * * 1#2/3", "0 0 * * SUNL", "*/\u0663 * * * *"),
)


@pytest.mark.parametrize("expression", [*TAKEN, *REFUSED])
def test_the_service_and_the_sdk_take_the_same_expressions(expression: str) -> None:
    assert is_taken(Schedule, expression) == is_taken(service_cron.parse, expression) == (expression in TAKEN)


def fields(*words: str) -> st.SearchStrategy[str]:
    """Fields of these words, with steps and in lists."""
    items = st.tuples(st.sampled_from(words), st.sampled_from(["", "", "/2", "/3", "/7", "/31", "/0"])).map("".join)
    return st.lists(items, min_size=1, max_size=2).map(",".join)


DAYS = fields("*", "31", "30-31", "29", "1-31", "0", "L", "LW")
MONTHS = fields("*", "2", "4-6", "apr", "feb-mar", "9,11", "13")
WEEKDAYS = fields("*", "7", "sat-sun", "5-7", "0L", "7L", "1#1", "sun#5", "1#6", "01L", "1#05", "SUN#1")


@settings(deadline=None, max_examples=100)
@example(f"0 0 {'1,' * 130}1 * *")
@example("0 0 */31 * 1#2")
@example("0 0 31 4-6/2 1")
@given(st.tuples(st.just("0 0"), DAYS, MONTHS, st.just("*") | WEEKDAYS).map(" ".join))
def test_the_service_and_the_sdk_agree_whether_there_is_such_a_day(expression: str) -> None:
    assert is_taken(Schedule, expression) == is_taken(service_cron.parse, expression)


def is_taken(check: Callable[[str], object], expression: str) -> bool:
    try:
        check(expression)
    except ValueError:
        return False
    return True
