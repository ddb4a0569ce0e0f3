"""How many parts of a JSON Schema apply to one value of a payload. docs/enqueue.md.

Alternatives multiply. If one refers to another twice, and so on, thousands of parts apply to one value. If one refers
to itself from two alternatives, the number doubles at each level of a payload, whose depth the sender decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

MOST_PARTS: Final = 1_000  # parts of a schema that apply to one value
MOST_RECURSIVE: Final = 1_000  # parts that refer to themselves
LEVELS: Final = 128  # levels of a payload
ENOUGH: Final = 10_000_000

_Node = dict[str, Any]
_SAME_ONE = ("not", "if", "then", "else")
_SAME_LIST = ("allOf", "anyOf", "oneOf")
_SAME_MAP = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY_ONE = (
    "additionalProperties",
    "additionalItems",
    "items",
    "contains",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def visits(schema: Any) -> list[int] | None:
    """How often a part of the schema can apply to the same value, by the level of the value in a payload. The last
    number is for all deeper levels. None: once at each level. Raises ValueError if too many parts apply to one
    value."""
    if not isinstance(schema, dict):
        return None
    graph = _Graph(schema)
    if graph.most_parts() > MOST_PARTS:
        raise ValueError(f"more than {MOST_PARTS} parts of it apply to the same value")
    return graph.levels()


class _Graph:
    """The parts of a schema, by number. `_same` has the parts that apply to the same value as a part. `_inside` has the
    parts that apply to a value inside it, each with that value's name, or None for any name."""

    def __init__(self, root: _Node) -> None:
        self._root = root
        self._named: dict[str, list[_Node]] = defaultdict(list)
        for node in _every(root):
            for keyword in ("$anchor", "$dynamicAnchor", "$id", "id"):
                if isinstance(name := node.get(keyword), str):
                    self._named[name.rstrip("#")].append(node)
        numbers: dict[int, int] = {id(root): 0}
        nodes = [root]

        def number(node: _Node) -> int:
            if id(node) not in numbers:
                numbers[id(node)] = len(nodes)
                nodes.append(node)
            return numbers[id(node)]

        self._same: list[list[int]] = []
        self._inside: list[list[tuple[str | None, int]]] = []
        for node in nodes:  # the list grows meanwhile
            self._same.append([number(other) for other in self._same_of(node)])
            self._inside.append([(name, number(other)) for name, other in _inside_of(node)])
        self._order = _in_order(self._same)

    def _same_of(self, node: _Node) -> Iterator[_Node]:
        for keyword in _SAME_ONE:
            yield from _nodes([node.get(keyword)])
        for keyword in _SAME_LIST:
            yield from _nodes(node.get(keyword))
        for keyword in _SAME_MAP:
            yield from _nodes(_values(node.get(keyword)))
        for keyword in _REFERENCES:
            if isinstance(target := node.get(keyword), str):
                yield from self._at(target)

    def _at(self, target: str) -> list[_Node]:
        address, _, place = target.partition("#")
        if not place.startswith("/"):
            return self._named.get(place or address, []) if place or address else [self._root]
        found: Any = self._root if not address else next(iter(self._named.get(address, [])), None)
        for step in place.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~").replace("%25", "%")  # noqa: PLW2901
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                found = found.get(step) if isinstance(found, dict) else None
        return list(_nodes([found]))

    def most_parts(self) -> int:
        parts = [1] * len(self._same)
        for i in reversed(self._order):
            parts[i] = min(1 + sum(parts[other] for other in self._same[i]), ENOUGH)
        return max(parts)

    def levels(self) -> list[int] | None:
        kept = self._recursive()
        if not kept:
            return None
        if len(kept) > MOST_RECURSIVE:
            raise ValueError(f"more than {MOST_RECURSIVE} parts of it refer to themselves")
        order = [i for i in self._order if i in kept]
        same = {i: [other for other in self._same[i] if other in kept] for i in order}
        counts = _most(_push({i: 1}, order, same) for i in order)
        found = [max(counts.values())]
        while len(found) < LEVELS and found[-1] < ENOUGH:
            after = self._inner(counts, order, same, kept)
            if all(after[i] <= counts[i] for i in after):
                break
            counts = _most([counts, after])
            found.append(min(max(counts.values()), ENOUGH))
        return None if len(found) == 1 and found[0] == 1 else found

    def _inner(
        self, counts: Counter[int], order: list[int], same: dict[int, list[int]], kept: set[int]
    ) -> Counter[int]:
        """The counts one level deeper, at the value, of any name, to which parts apply most often."""
        by_name: dict[str | None, Counter[int]] = defaultdict(Counter)
        for i in order:
            for name, other in self._inside[i]:
                if other in kept:
                    by_name[name][other] += counts[i]
        of_any = by_name.pop(None, Counter())
        return _most(_push(of_any + named, order, same) for named in [Counter[int](), *by_name.values()])

    def _recursive(self) -> set[int]:
        """Parts that lead to themselves, and parts between two such parts."""
        leads = [
            {*same, *(other for _, other in inside)} for same, inside in zip(self._same, self._inside, strict=True)
        ]
        return _without_ends(_without_ends(set(range(len(leads))), leads), _reverse(leads))


def _without_ends(kept: set[int], leads: list[set[int]]) -> set[int]:
    """The parts, without those from which every path ends."""
    from_where = _reverse(leads)
    left = [len(leads[i] & kept) for i in range(len(leads))]
    ends = [i for i in kept if left[i] == 0]
    kept = set(kept)
    while ends:
        end = ends.pop()
        kept.discard(end)
        for i in from_where[end]:
            left[i] -= 1
            if left[i] == 0 and i in kept:
                ends.append(i)
    return kept


def _reverse(leads: list[set[int]]) -> list[set[int]]:
    turned: list[set[int]] = [set() for _ in leads]
    for i, others in enumerate(leads):
        for other in others:
            turned[other].add(i)
    return turned


def _push(counts: dict[int, int], order: list[int], same: dict[int, list[int]]) -> Counter[int]:
    """How often each part applies to a value, if these parts do."""
    found = Counter(counts)
    for i in order:
        if count := found[i]:
            for other in same[i]:
                found[other] = min(found[other] + count, ENOUGH)
    return found


def _most(counted: Iterable[Counter[int]]) -> Counter[int]:
    most: Counter[int] = Counter()
    for counts in counted:
        most |= counts
    return most


def _in_order(same: list[list[int]]) -> list[int]:
    """An order of the parts in which each comes before the parts that it leads to at the same value. If they lead in a
    circle, the way back is removed from `same`."""
    order: list[int] = []
    state = [0] * len(same)  # 1: on the way, 2: done
    for start in range(len(same)):
        stack: list[tuple[int, Callable[[], int | None]]] = []

        def enter(i: int, stack: list[tuple[int, Callable[[], int | None]]] = stack) -> None:
            state[i] = 1
            same[i] = [other for other in same[i] if state[other] != 1]
            others = iter(list(same[i]))
            stack.append((i, lambda: next(others, None)))

        if state[start] == 0:
            enter(start)
        while stack:
            i, following = stack[-1]
            other = following()
            if other is None:
                state[i] = 2
                order.append(i)
                stack.pop()
            elif state[other] == 0:
                enter(other)
            elif state[other] == 1:
                same[i].remove(other)
    return order[::-1]


def _every(schema: Any) -> Iterator[_Node]:
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
        waiting += [
            inner for inner in (_values(one) if isinstance(one, dict) else one) if isinstance(inner, (dict, list))
        ]


def _inside_of(node: _Node) -> Iterator[tuple[str | None, _Node]]:
    for keyword in _ANY_ONE:
        for other in _nodes([node.get(keyword)]):
            yield None, other
    for other in _nodes(_values(node.get("patternProperties"))):
        yield None, other
    properties = node.get("properties")
    for name, one in properties.items() if isinstance(properties, dict) else ():
        for other in _nodes([one]):
            yield name, other
    for keyword in ("prefixItems", "items"):
        listed = node.get(keyword)
        for i, one in enumerate(listed if isinstance(listed, list) else ()):
            for other in _nodes([one]):
                yield f"{i}", other


def _nodes(some: Any) -> Iterator[_Node]:
    for one in some if isinstance(some, list) else ():
        if isinstance(one, dict):
            yield one


def _values(one: Any) -> list[Any]:
    return list(one.values()) if isinstance(one, dict) else []
