"""Untrusted texts, as they may be shown."""

from __future__ import annotations

import unicodedata


def shown(text: object, most: int = 200) -> str:
    """A text as it may be shown: cut, and without what does not show or turns the direction of what follows."""
    plain = "".join(one if one == "\n" or unicodedata.category(one)[0] != "C" else "·" for one in str(text)[: most + 1])
    return plain if len(plain) <= most else f"{plain[:most]}…"


def line(text: object, most: int = 200) -> str:
    """The same in one line, for a terminal: what follows a line's end could pass for the command's own words."""
    return "".join("·" if one in "\n\u2028\u2029" else one for one in shown(text, most))
