"""Makes untrusted texts safe to print."""

from __future__ import annotations

import unicodedata


def clean(text: object, most: int = 200) -> str:
    """Shorten a text to `most` characters; replace control, invisible and direction-changing characters by dots."""
    plain = "".join(one if one == "\n" or unicodedata.category(one)[0] != "C" else "·" for one in str(text)[: most + 1])
    return plain if len(plain) <= most else f"{plain[:most]}…"


def clean_line(text: object, most: int = 200) -> str:
    """The same in one line, for a terminal: a text with line breaks could imitate the command's own output."""
    return "".join("·" if one in "\n\u2028\u2029" else one for one in clean(text, most))
