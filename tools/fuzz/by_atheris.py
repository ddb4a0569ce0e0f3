"""One target in this process: python -m tools.fuzz.by_atheris TARGET [options and folders of libFuzzer]."""

from __future__ import annotations

import logging
import sys


def main(target: str, options: list[str]) -> int:
    try:
        import atheris
    except ImportError:
        print("atheris is not there: it is built for Linux on x86-64, and Python 3.11 to 3.13", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["app"]):  # all else is slow to load so, and is not looked at
        from tools.fuzz.targets import TARGETS
    logging.disable()  # what is refused is said so a thousand times a second
    atheris.Setup([sys.argv[0], *options], TARGETS[target])
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
