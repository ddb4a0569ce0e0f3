"""Writes Grafana's dashboards: python3 deploy/grafana/dashboards.py FOLDER. Needs Python 3.11 or newer and no packages.

docker-compose.yml runs it at each start. Each dashboard is a module; panels.py has its building blocks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import overview
import postgresql
import topic
import workers

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for module in (overview, topic, postgresql, workers):
        path = folder / f"{module.BOARD['uid']}.json"
        path.write_text(json.dumps(module.BOARD, indent=1, ensure_ascii=False) + "\n")
