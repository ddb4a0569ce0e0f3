"""Message attributes: check them, hash them as AWS does, and store them in a job's metadata.

An attribute is a string in the metadata under its own name, so other dialects can read it. `$sqs` holds the fields that
only SQS has: types other than String, and system attributes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from app.features.sqs.faults import SqsFault, invalid
from app.http.payloads import has_nul

OWN: Final = "$sqs"
MOST: Final = 10  # attributes of a message
MAX_NAME: Final = 256  # characters
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z")
# Characters that XML 1.0 can't have, which SQS refuses.
_NO_TEXT: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class AttributeValue(msgspec.Struct, rename="pascal", frozen=True):
    """The value of a message attribute. `binary_value` is base64."""

    data_type: Annotated[str, Meta(max_length=256)] = ""
    string_value: str | None = None
    binary_value: str | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[str] | None = None


class Attributes(msgspec.Struct, frozen=True):
    """A message's attributes: type and value by name. Binary values are base64."""

    values: dict[str, tuple[str, str]]

    @property
    def size(self) -> int:
        """Bytes that count for the size of a message: names, types and values."""
        return sum(
            len(name.encode()) + len(kind.encode()) + len(_raw(kind, value))
            for name, (kind, value) in self.values.items()
        )

    def md5(self, names: Iterable[str] | None = None) -> str | None:
        """The MD5 of these attributes, or all; None: there are none."""
        chosen = sorted(self.values if names is None else names)
        if not chosen:
            return None
        digest = hashlib.md5(usedforsecurity=False)
        for name in chosen:
            kind, value = self.values[name]
            raw = _raw(kind, value)
            for part in (name.encode(), kind.encode()):
                digest.update(len(part).to_bytes(4) + part)
            digest.update(b"\2" if kind.startswith("Binary") else b"\1")
            digest.update(len(raw).to_bytes(4) + raw)
        return digest.hexdigest()

    def select(self, asked: Iterable[str]) -> dict[str, dict[str, str]]:
        """The attributes that a caller asks for by name, `prefix.*`, `.*` or All, in the form of an answer."""
        patterns = list(asked)
        every = any(one in {"All", ".*"} for one in patterns)
        starts = tuple(one[:-2] for one in patterns if one.endswith(".*"))
        chosen = {
            name: value
            for name, value in self.values.items()
            if every or name in patterns or (starts and name.startswith(starts))
        }
        return {
            name: {("BinaryValue" if kind.startswith("Binary") else "StringValue"): value, "DataType": kind}
            for name, (kind, value) in chosen.items()
        }


def _raw(kind: str, value: str) -> bytes:
    return base64.b64decode(value) if kind.startswith("Binary") else value.encode()


def check_text(text: str) -> None:
    """Check that a text has only characters that SQS takes. Raises SqsFault."""
    if (match := _NO_TEXT.search(text)) is not None:
        raise SqsFault(
            "InvalidMessageContents",
            f"Invalid characters found: U+{ord(match[0]):04X}. Valid are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to "
            "#xFFFD | #x10000 to #x10FFFF.",
        )


def read(given: Mapping[str, AttributeValue]) -> Attributes:
    """Check a message's attributes. Raises SqsFault."""
    if len(given) > MOST:
        raise invalid(f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{MOST}].")
    values: dict[str, tuple[str, str]] = {}
    for name, value in given.items():
        _check_name(name)
        kind = value.data_type
        base = kind.partition(".")[0]
        if not kind:
            raise invalid(f"The message attribute '{name}' must contain non-empty message attribute type.")
        if base not in {"String", "Number", "Binary"}:
            raise invalid(
                f"The message attribute '{name}' has an invalid message attribute type, the set of supported type "
                "prefixes is Binary, Number, and String."
            )
        text = value.binary_value if base == "Binary" else value.string_value
        if not text:
            raise invalid(
                f"The message attribute '{name}' must contain non-empty message attribute value for message attribute "
                f"type '{kind}'."
            )
        if base == "Binary":
            try:
                base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise invalid(f"The message attribute '{name}' is not base64.") from None
        else:
            check_text(text)
        if base == "Number" and _NUMBER.match(text) is None:
            raise invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")
        values[name] = (kind, text)
    return Attributes(values)


def _check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME or _NAME.match(name) is None or name.lower().startswith(("aws.", "amazon.")):
        raise invalid(
            f"The message attribute name '{name[:80]}' is invalid. Attribute name can contain A-Z, a-z, 0-9, "
            "underscore (_), hyphen (-), and period (.) characters."
        )


def to_metadata(attributes: Attributes, system: Mapping[str, str]) -> str | None:
    """Make a job's metadata. `system`: the fields that only SQS has."""
    kinds = {name: kind for name, (kind, _) in attributes.values.items() if kind != "String"}
    own: dict[str, Any] = {**system, **({"types": kinds} if kinds else {})}
    fields: dict[str, Any] = {name: value for name, (_, value) in attributes.values.items()}
    if own:
        fields[OWN] = own
    if not fields:
        return None
    text = msgspec.json.encode(fields)
    if has_nul(text):
        raise invalid("An attribute has a NUL character (U+0000), which can't be stored.")
    return text.decode()


def of_metadata(metadata: str | None) -> tuple[Attributes, dict[str, str]]:
    """Read a job's attributes and SQS's own fields from its metadata. Jobs of all dialects have attributes."""
    if metadata is None:
        return Attributes({}), {}
    fields = msgspec.json.decode(metadata, type=dict[str, Any])
    own = fields.pop(OWN, None)
    own = own if isinstance(own, dict) else {}
    kinds = own.pop("types", {})
    kinds = kinds if isinstance(kinds, dict) else {}
    values = {
        name: (str(kinds.get(name, "String")), value)
        for name, value in fields.items()
        if isinstance(value, str) and value and _NAME.match(name)
    }
    return Attributes(values), {name: value for name, value in own.items() if isinstance(value, str)}
