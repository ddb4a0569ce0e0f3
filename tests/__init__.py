"""Holdfast's tests. They talk to a real PostgreSQL and a real server process."""

import sys
from pathlib import Path

# The client is a package of its own, which nothing installs here: programs of these tests use it as it stands.
sys.path.insert(1, str(Path(__file__).parents[1] / "sdk/src"))
