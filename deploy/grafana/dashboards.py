"""Writes Grafana's dashboards: deploy/grafana/dashboards.py FOLDER, which `make dashboards` calls. Each is a module of
its own; panels.py has how one is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import overview
import postgresql
import topic
import workers

if __name__ == "__main__":
    for module in (overview, topic, postgresql, workers):
        path = Path(sys.argv[1]) / f"{module.BOARD['uid']}.json"
        path.write_text(json.dumps(module.BOARD, indent=1, ensure_ascii=False) + "\n")
