"""The settings of topics by their declarations: the manual's table and the client's fields are written by them, and
records may lack newer ones."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from app.base.times import duration
from app.kernel.topics.declarations import Declaration
from app.kernel.topics.settings import BIGINT_MAX, DECLARED, SEVEN_DAYS_MS, TEN_YEARS_MS

ROOT: Final = Path(__file__).parents[1]
MANUAL: Final = ROOT / "docs/semantics.md"
CLIENT: Final = ROOT / "sdk/src/holdfast/models/topics.py"
BEGIN: Final = "made by `make reference` from app/kernel/topics/settings.py"
# What the client's topics have where nothing is said, in place of the service's defaults.
OF_CLIENT: Final = {
    "type": '"queue"',
    "max_deliveries": "20",
    "dead_letter": "DEAD_LETTERS",
    "backoff": 'Backoff(kind="exponential", base_ms=1_000, cap_ms=600_000, jitter="full")',
}


def newer(*recorded: str) -> set[str]:
    """Settings that are in none of these records: they were declared later."""
    return {name for name in DECLARED if not any(f'"{name}"' in text for text in recorded)}


def without(names: set[str], value: Any) -> Any:
    """A JSON without these keys, so that a record need not be made anew for each new setting."""
    if isinstance(value, dict):
        return {key: without(names, one) for key, one in value.items() if key not in names}
    return [without(names, one) for one in value] if isinstance(value, list) else value


def completed(names: set[str], value: Any) -> Any:
    """A JSON with these settings too, where it has others: a topic's configuration has them all."""
    if isinstance(value, dict):
        more = {name: msgspec.to_builtins(DECLARED[name].default) for name in names if "auto_priority" in value}
        return more | {key: completed(names, one) for key, one in value.items()}
    return [completed(names, one) for one in value] if isinstance(value, list) else value


def defaults(*, but: Collection[str] = ()) -> dict[str, Any]:
    """What v0 shows of a topic where nothing was chosen."""
    shown = {name: msgspec.to_builtins(one.default) for name, one in DECLARED.items() if one.setting.v0}
    return without({*but}, shown)  # type: ignore[no-any-return]


def pages() -> dict[Path, str]:
    """Each file with what is written anew in it."""
    return {
        MANUAL: _between(MANUAL.read_text(), f"<!-- {BEGIN} -->\n\n", "\n<!-- end -->\n", _table()),
        CLIENT: _between(CLIENT.read_text(), f"    # {BEGIN}\n", "    # end\n", _fields()),
    }


def _between(text: str, begin: str, end: str, made: str) -> str:
    before, begin, rest = text.partition(begin)
    _, end, after = rest.partition(end)
    assert "" not in {begin, end}
    return before + begin + made + end + after


def _table() -> str:
    rows = "".join(_row(one) for one in DECLARED.values() if one.setting.v0)
    return f"| setting | type | default | bounds | what it does |\n|---|---|---|---|---|\n{rows}"


def _row(one: Declaration) -> str:
    setting = one.setting
    about = setting.about + ("" if setting.logs or one.name == "type" else " Of a queue.")
    see = f" {setting.see[0].upper()}{setting.see[1:]}." if setting.see else ""
    cells = (f"`{one.name}`", _type(one), setting.usual or _value(one, one.default), _bounds(one), about + see)
    return f"| {' | '.join(cells)} |\n"


def _type(one: Declaration) -> str:
    if one.words:
        return ", ".join(f"`{word}`" for word in one.words)
    if get_origin(one.type) is dict:
        return "{tenant: int}"
    if get_origin(one.type) is tuple:
        return "list"
    if issubclass(one.type, msgspec.Struct):
        return f"`{{{', '.join(one.type.__struct_fields__)}}}`"
    return {int: "int, ms" if one.is_length else "int", str: "text", bool: "bool"}[one.type]


def _value(one: Declaration, value: Any) -> str:
    if one.is_length and value:
        return f"{value} ({duration(value)})"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    if value is None:
        return "none"
    plain = value.value if isinstance(value, Enum) else value
    return f"`{plain}`" if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _bounds(one: Declaration) -> str:
    setting = one.setting
    if get_origin(one.takes) is Annotated and get_origin(one.type) in {dict, tuple}:
        of, meta = get_args(one.takes)[:2]
        if get_origin(one.type) is tuple:
            return f"{meta.min_length} to {meta.max_length}"
        each = get_args(get_args(of)[1])[1]
        return f"{each.ge} to {each.le} each, {meta.max_length:,} tenants"
    least, most = setting.bounds or setting.clamp or (None, None)
    if least is None or most is None:
        return ""
    upper = {TEN_YEARS_MS: "ten years", SEVEN_DAYS_MS: "seven days"}.get(most, str(most))
    return "≥ 0" if most == BIGINT_MAX else f"{least} to {upper}" + (", clamped" if setting.clamp else "")


def _fields() -> str:
    return "".join(map(_field, (one for one in DECLARED.values() if one.setting.v0)))


def _field(one: Declaration) -> str:
    value = OF_CLIENT.get(one.name, "None")
    kind = _client_type(one) + ("" if one.name == "type" else " | None")
    return f"    {one.name}: {kind} = {value}\n"


def _client_type(one: Declaration) -> str:
    if one.name == "durability":
        return "Durability"
    if one.words:
        return f"Literal[{', '.join(repr(word).replace(chr(39), chr(34)) for word in one.words)}]"
    if get_origin(one.type) is dict:
        return "Mapping[str, int]"
    if get_origin(one.type) is tuple:
        return "tuple[str, ...]"
    return str(one.type.__name__)
