"""What a user can mend: shown as one line, without a trace."""

from __future__ import annotations


class Mistake(Exception):
    """An argument, a file or a setting that can't work; the text says which, and what would."""
