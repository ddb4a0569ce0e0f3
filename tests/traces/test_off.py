"""While nobody has asked for traces, nothing is loaded and nothing is done for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx

from tests.conftest import Running

ROOT = Path(__file__).parents[2]
# Three applications, one after another: without traces, with them where the packages are missing, and with them.
CREATE = """
import json
import sys
from app.errors import ConfigurationError
from app.main import create_app
from app.settings import Settings

def created(traces):
    try:
        around = create_app(Settings.from_env({"HOLDFAST_TRACES": traces})).user_middleware
    except ConfigurationError as error:
        return str(error)
    return [one.cls.__name__ for one in around], sorted(name for name in sys.modules if sys.modules[name])

off = created("off")
sys.modules["opentelemetry.sdk.trace"] = None
missing = created("otlp")
del sys.modules["opentelemetry.sdk.trace"]
print(json.dumps([off, missing, created("otlp")]))
"""
OURS = {"opentelemetry.sdk.trace", "opentelemetry.exporter", "google.protobuf", "requests", "app.base.traces"}


def test_the_sdk_and_the_exporter_are_loaded_only_for_traces() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", CREATE], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    off, missing, on = json.loads(ran.stdout)
    assert set(off[1]) & OURS == set()
    assert set(on[1]) > OURS, "else this test sees nothing"
    assert (off[0], on[0]) == (["Gate"], ["TracingMiddleware", "Gate"])
    assert missing.startswith("HOLDFAST_TRACES=otlp needs the extra `tracing`, which is not installed. ")
    assert "deploy/requirements/tracing.txt" in missing


async def test_a_request_goes_the_way_that_it_went_before_and_its_headers_mean_nothing(
    service: Running, http: httpx.AsyncClient, topic: str
) -> None:
    assert [getattr(one.cls, "__name__", "") for one in service.app.user_middleware] == ["Gate"]
    await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
    headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}]}, headers=headers)
    [job] = (await http.post(f"/v0/topics/{topic}/claim", json={"node": "w"})).json()["claimed"]
    assert "meta" not in job
