"""The declared settings of topics: the manual's tables and the client's fields are generated from them, and recorded
answers can lack newer ones."""

from __future__ import annotations

import json
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from app.base.times import duration
from app.kernel.topics.declarations import Declaration
from app.kernel.topics.policy import DEFAULTS, OF_MESSAGES, Defaults
from app.kernel.topics.settings import BIGINT_MAX, DECLARED, SEVEN_DAYS_MS, TEN_YEARS_MS

ROOT: Final = Path(__file__).parents[1]
MANUAL: Final = ROOT / "docs/semantics.md"
MESSAGES: Final = ROOT / "docs/configuration.md"
CLIENT: Final = ROOT / "sdk/src/holdfast/models/topics.py"
BEGIN: Final = "made by `make reference` from app/kernel/topics/settings.py"
# Defaults of the client's topics that differ from the service's.
OF_CLIENT: Final = {
    "type": '"queue"',
    "max_deliveries": "20",
    "dead_letter": "DEAD_LETTERS",
    "backoff": 'Backoff(kind="exponential", base_ms=1_000, cap_ms=600_000, jitter="full")',
}


def newer(*recorded: str) -> set[str]:
    """The settings that none of these records has, because they were declared later."""
    return {name for name in DECLARED if not any(f'"{name}"' in text for text in recorded)}


def without(names: set[str], value: Any) -> Any:
    """A JSON value without these keys, so that a new setting does not change each record."""
    if isinstance(value, dict):
        return {key: without(names, one) for key, one in value.items() if key not in names}
    return [without(names, one) for one in value] if isinstance(value, list) else value


def completed(names: set[str], value: Any) -> Any:
    """A JSON value with these settings added to each topic's configuration."""
    if isinstance(value, dict):
        more = {name: msgspec.to_builtins(DECLARED[name].default) for name in names if "auto_priority" in value}
        return more | {key: completed(names, one) for key, one in value.items()}
    return [completed(names, one) for one in value] if isinstance(value, list) else value


def defaults(*, but: Collection[str] = ()) -> dict[str, Any]:
    """The configuration that v0 shows for a topic without settings of its own."""
    shown = {name: msgspec.to_builtins(one.default) for name, one in DECLARED.items() if one.setting.v0}
    return without({*but}, shown)  # type: ignore[no-any-return]


def pages() -> dict[Path, str]:
    """Each file with its generated part."""
    return {
        MANUAL: between(MANUAL.read_text(), f"<!-- {BEGIN} -->\n\n", "\n<!-- end -->\n", _table()),
        MESSAGES: between(MESSAGES.read_text(), f"<!-- {BEGIN} -->\n\n", "\n<!-- end -->\n", _messages_table()),
        CLIENT: between(CLIENT.read_text(), f"    # {BEGIN}\n", "    # end\n", _fields()),
    }


def between(text: str, begin: str, end: str, made: str) -> str:
    before, begin, rest = text.partition(begin)
    _, end, after = rest.partition(end)
    assert "" not in {begin, end}
    return before + begin + made + end + after


def _table() -> str:
    rows = "".join(_row(one) for one in DECLARED.values() if one.setting.v0)
    return f"| setting | type | default | bounds | what it does |\n|---|---|---|---|---|\n{rows}"


def _row(one: Declaration) -> str:
    setting = one.setting
    about = setting.about + ("" if setting.logs or one.name == "type" else " Queues only.")
    see = f" {setting.see[0].upper()}{setting.see[1:]}." if setting.see else ""
    cells = (f"`{one.name}`", _type(one), setting.usual or _value(one, one.default), _bounds(one), about + see)
    return f"| {' | '.join(cells)} |\n"


def _messages_table() -> str:
    rows = "".join(_messages_row(one) for one in DECLARED.values() if one.setting.replaced)
    return f"| setting | type | null or absent | bounds | v0 | what it does |\n|---|---|---|---|---|---|\n{rows}"


def _messages_row(one: Declaration) -> str:
    """A row with the messages dialect's name of the setting."""
    setting, default = one.setting, getattr(OF_MESSAGES, one.name)
    name, kind, unit, of_v0, about = setting.seconds or one.name, _type(one), 1, "the same", setting.about
    usual = _value(one, default)
    if setting.seconds:
        kind, unit, of_v0 = "int, s", 1000, f"`{one.name}`"
        usual = "" if default is None else f"{default // unit} ({duration(default)})"
    elif setting.flag is not None:
        name, kind, usual = setting.flag.name, "bool", json.dumps(default == setting.flag.true)
        about = f"true is {one.name} `{setting.flag.true.value}`, false is `{setting.flag.false.value}`."
    elif not setting.v0:
        of_v0 = "`max_deliveries`, `on_exhausted`"
    if one.name in Defaults.__struct_fields__:
        own = f"{setting.usual}, else " if setting.usual else ""
        usual = f"{own}`HOLDFAST_{name.upper()}`, {getattr(DEFAULTS, one.name) // unit}"
    return f"| {' | '.join((f'`{name}`', kind, usual, _bounds(one, unit), of_v0, about))} |\n"


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


def _bounds(one: Declaration, unit: int = 1) -> str:
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
    lower = str(least) if unit == 1 else f"{least / unit:g}"
    upper = {TEN_YEARS_MS: "ten years", SEVEN_DAYS_MS: "seven days"}.get(most, str(most // unit))
    return "≥ 0" if most == BIGINT_MAX else f"{lower} to {upper}" + (", clamped" if setting.clamp else "")


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
