"""Convert a topic's settings to form fields and back, and compare configurations.

Settings, descriptions and bounds are declared in app/kernel/topics/settings.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from app.base.times import exact_length, typed_length
from app.errors import InvalidRequest
from app.kernel.topics.declarations import Card, Declaration
from app.kernel.topics.policy import AskedSettings, Defaults, Policy, in_effect, resolve
from app.kernel.topics.settings import DECLARED, FIELDS, Chosen, Config, Exhaustion, TopicType

PARTS: Final = {part.value: tuple(name for name, one in DECLARED.items() if one.setting.part is part) for part in Card}
SETTINGS: Final = tuple(name for names in PARTS.values() for name in names)
_CHANGED: Final = (*SETTINGS, "priority", "auto_priority")  # the last two are set by the API only
_OF_SERVICE: Final = set(Defaults.__struct_fields__)  # a queue takes these from the service if they are unset
_BY_RETRIES: Final = {"max_retries", "dlq_threshold"}
_BY_DELIVERIES: Final = {"max_deliveries", "on_exhausted"}
_WHOLE: Final = re.compile(r"-?[0-9]{1,30}\Z")


class Source(Enum):
    SET = "set here"
    DEFAULT = "default"
    SERVICE = "default of the service"
    TYPE = "fixed by its type"
    FOLLOWS = "follows from others"


class FieldKind(Enum):
    NUMBER = "number"
    LENGTH = "length of time"
    CHOICE = "choice"
    TEXT = "text"
    JSON = "json"


class FormSetting(msgspec.Struct, frozen=True):
    """A setting on the page.

    typed: the text of its field, "" for the default. value: the value in effect. error: the error of the text, if any.
    fixed: the setting can't be changed on this page.
    """

    name: str
    about: str
    kind: FieldKind
    choices: tuple[str, ...]
    typed: str
    value: str
    default: str
    source: Source
    fixed: bool
    error: str = ""


class SettingChange(msgspec.Struct, frozen=True):
    name: str
    before: str
    after: str


class Edit(msgspec.Struct, frozen=True):
    """An edited configuration, and errors by setting. `now` is only valid without errors."""

    now: Chosen
    errors: dict[str, str]


def parts(
    policy: Policy, defaults: Defaults, typed: Mapping[str, str], errors: Mapping[str, str]
) -> dict[str, list[FormSetting]]:
    """Return all settings by part. The texts in `typed` replace stored values."""
    default = _default(policy, defaults)
    return {
        title: [_setting(name, policy, default, typed.get(name), errors.get(name, "")) for name in names]
        for title, names in PARTS.items()
    }


def edit_of(name: str, was: Chosen, typed: Mapping[str, str]) -> Edit:
    """Apply texts of fields, already stripped, to a configuration."""
    values, errors = dict[str, Any](), dict[str, str]()
    for setting in SETTINGS:
        if setting in typed and _why_fixed(setting, was) is None:
            try:
                values[setting] = _parse(setting, typed[setting])
            except ValueError as error:
                errors[setting] = f"{error}."
    if "dead_letter" in values and _why_fixed("on_exhausted", was) is None and was.on_exhausted is _usual_exit(was):
        values.setdefault("on_exhausted", None)  # its default depends on dead_letter
    asked = {one: _plain(getattr(was, one)) for one in AskedSettings.__struct_fields__ if one in FIELDS}
    try:
        full = resolve(name, AskedSettings(**asked | {one: values[one] for one in values.keys() - _BY_RETRIES}))
    except InvalidRequest as error:  # only dead_letter can be refused here
        errors.setdefault("dead_letter", error.message)
    if errors:
        return Edit(was, errors)
    left = {one for one in values.keys() & _of_service(was) if values[one] is None} | (values.keys() & _BY_RETRIES)
    return Edit(replace(was, **{one: values[one] if one in left else getattr(full, one) for one in values}), errors)


def undo(was: Chosen, detail: str) -> Chosen | None:
    """Undo a change, given the detail of its audit entry. Returns None if the entry has no earlier values."""
    changed = msgspec.json.decode(detail, type=dict[str, Any])
    before = {name: changed[name]["from"] for name in _CHANGED if name != "type" and "from" in changed.get(name, ())}
    if not before:
        return None
    try:
        return msgspec.convert(msgspec.to_builtins(was) | before, Chosen)
    except msgspec.ValidationError:  # written by another version
        return None


def differences(was: Chosen, now: Chosen, defaults: Defaults) -> list[SettingChange]:
    return [
        SettingChange(name, _text_in_effect(name, was, defaults), _text_in_effect(name, now, defaults))
        for name in _CHANGED
        if getattr(was, name) != getattr(now, name)
    ]


def changes_in(detail: str) -> list[SettingChange]:
    changed = msgspec.json.decode(detail, type=dict[str, Any])
    return [
        SettingChange(name, _text(name, one["from"]) or "–", _text(name, one["to"]) or "–")
        for name, one in changed.items()
        if isinstance(one, dict) and one.keys() >= {"from", "to"} and name != "configured"
    ]


def typed_of(was: Chosen, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the fields that were edited."""
    typed = {name: fields[name].replace("\r\n", "\n").strip() for name in SETTINGS if name in fields}
    return {name: text for name, text in typed.items() if text != _text(name, getattr(was, name))}


def _setting(name: str, policy: Policy, default: Config, typed: str | None = None, error: str = "") -> FormSetting:
    chosen, one = policy.chosen, DECLARED[name]
    value, usual, held = getattr(policy.config, name), getattr(default, name), _why_fixed(name, chosen)
    if name in _of_service(chosen):
        source = Source.SERVICE if getattr(chosen, name) is None else Source.SET
        if name == "dlq_threshold" and chosen.dlq_threshold is None and chosen.max_retries is not None:
            source = Source.FOLLOWS
    else:
        source = Source.DEFAULT if value == usual else Source.SET
    return FormSetting(
        name,
        one.about,
        _kind(one),
        _choices(one),
        _text(name, getattr(chosen, name)) if typed is None else typed,
        _read(name, value),
        _read(name, usual),
        held or source,
        held is not None,
        error,
    )


def _default(policy: Policy, defaults: Defaults) -> Config:
    """The configuration in effect if every field is empty."""
    name, chosen = policy.topic.name, policy.chosen
    if chosen.type is TopicType.LOG:
        return resolve(name, AskedSettings())
    nothing = Chosen(type=chosen.type, max_deliveries=None if chosen.max_deliveries is None else 0)
    threshold = in_effect(name, replace(nothing, max_retries=chosen.max_retries), defaults).dlq_threshold
    return replace(in_effect(name, nothing, defaults), dlq_threshold=threshold)


def _of_service(chosen: Chosen) -> set[str]:
    return _OF_SERVICE if chosen.type is TopicType.QUEUE else set()


def _why_fixed(name: str, chosen: Chosen) -> Source | None:
    """Why a setting can't be changed on this page, or None if it can."""
    if name == "type" or (chosen.type is TopicType.LOG and not DECLARED[name].setting.logs):
        return Source.TYPE
    return Source.FOLLOWS if name in (_BY_DELIVERIES if chosen.max_deliveries is None else _BY_RETRIES) else None


def _kind(one: Declaration) -> FieldKind:
    if _choices(one):
        return FieldKind.CHOICE
    if one.is_length:
        return FieldKind.LENGTH
    return {int: FieldKind.NUMBER, str: FieldKind.TEXT}.get(one.type, FieldKind.JSON)


def _choices(one: Declaration) -> tuple[str, ...]:
    return ("true", "false") if one.type is bool else one.words


def _parse(name: str, text: str) -> Any:
    """Parse a text to the API's value, None for "". Raises ValueError with the message to show."""
    value: Any
    one = DECLARED[name]
    kind = _kind(one)
    if not text:
        return None
    if "\0" in text:
        raise ValueError("Must not contain a NUL character")
    if kind is FieldKind.LENGTH:
        value = typed_length(text)
        if value is None:
            raise ValueError('Must be a length of time, such as "30 s", "5 min" or "1500 ms"')
    elif kind is FieldKind.NUMBER:
        if _WHOLE.match(text) is None:
            raise ValueError("Must be a whole number")
        value = int(text)
    elif kind is FieldKind.JSON:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"Must be JSON: {error}") from None
    else:
        value = text == "true" if one.type is bool and text in _choices(one) else text
    return msgspec.convert(value, one.takes)  # a ValidationError is a ValueError


def _usual_exit(chosen: Chosen) -> Exhaustion:
    return Exhaustion.REDELIVER if chosen.dead_letter is None else Exhaustion.DEAD_LETTER


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _read(name: str, value: Any) -> str:
    return _text(name, value) or "none"


def _text(name: str, value: Any) -> str:
    """Format a value as a user types it; lengths of time have units."""
    value = _plain(value)
    if isinstance(value, int) and name in DECLARED and DECLARED[name].is_length:
        return exact_length(value)
    if value is None or isinstance(value, str):
        return value or ""
    encoded = msgspec.json.encode(value)
    return msgspec.json.format(encoded, indent=1 if isinstance(value, dict | msgspec.Struct) else 0).decode()


def _text_in_effect(name: str, chosen: Chosen, defaults: Defaults) -> str:
    value = getattr(chosen, name)
    if value is None and name in _of_service(chosen):
        return f"default of the service: {_read(name, getattr(in_effect('', chosen, defaults), name))}"
    return _read(name, value)
