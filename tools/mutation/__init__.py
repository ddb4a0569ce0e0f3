"""Its packages are no part of .venv: make mutation puts them here, and what .venv has as well comes from there."""

import sys
from pathlib import Path

PACKAGES = Path(__file__).parents[2] / ".tools/mutation"
sys.path.append(str(PACKAGES))
