"""The session of the pipelines, and their command line."""

from __future__ import annotations

import logging
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import psycopg
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark.__main__ import main
from spark.errors import Mistake
from spark.running import embedded
from spark.session import zipped
from spark.windows import Window, day, instant

ROOT = Path(__file__).parents[2]


def test_executors_run_this_python_and_keep_utc(spark: SparkSession) -> None:
    def interpreter(_: object) -> str:
        return sys.executable

    assert spark.sparkContext.parallelize([0]).map(interpreter).collect() == [sys.executable]
    assert spark.sql("SELECT current_timezone()").collect()[0][0] == "UTC"


def test_the_package_ships_whole_and_without_caches(tmp_path: Path) -> None:
    names = zipfile.ZipFile(zipped(tmp_path)).namelist()
    assert {"spark/__init__.py", "spark/session.py", "spark/source/__init__.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]


def test_help_needs_neither_java_nor_a_database() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "spark", "--help"],
        cwd=ROOT,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "python -m spark" in asked.stdout


def test_help_does_not_wait_for_spark() -> None:
    asked = "import sys, spark.__main__ as m\ntry: m.main(['--help'])\nfinally: print([*sys.modules], file=sys.stderr)"
    heard = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "'spark.pipelines'" in heard.stderr
    assert not [name for name in ("pyspark", "psycopg", "pyarrow", "numpy") if f"'{name}'" in heard.stderr]


@pytest.mark.parametrize("words", [["--dsn", "x", "audit"], ["audit", "--dsn", "x"]])
def test_the_database_is_named_before_the_pipeline_or_behind_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Mock(return_value=0)
    monkeypatch.setattr("spark.running.run", run)
    main([*words, "--limit", "1"])
    assert run.call_args.args[0].dsn == "x"


def test_what_is_wrong_with_an_expression_is_said_once(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("SQLQueryContextLogger"), "handlers", [caplog.handler])
    with pytest.raises(AnalysisException, match="nowhere"):
        spark.sql("SELECT nowhere")
    assert caplog.records == []


def test_without_a_database_it_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="HOLDFAST_DATABASE_URL"):
        embedded(tmp_path)


class OfJava(Py4JJavaError):  # type: ignore[misc]  # Py4J has no types
    """One without a Java machine."""

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        return "An error occurred while calling o12.open.\n: java.io.IOException: disk full\n\tat java.base"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (psycopg.OperationalError("connection lost\nmore"), "connection lost"),
        (OfJava(), "java.io.IOException: disk full"),
    ],
)
def test_a_failure_of_the_database_or_of_java_is_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark.running.session", Mock(side_effect=error))
    assert main(["--dsn", "x", "archive", "--to", "y"]) == 1
    assert capsys.readouterr().err == f"spark: {said}\n"


def test_a_window_is_half_open_and_never_empty() -> None:
    start = instant("2026-11-21", "--from")
    assert start == datetime(2026, 11, 21, tzinfo=UTC)
    assert instant("2026-11-21T01:00:00+01:00", "--from") == start
    with pytest.raises(Mistake, match="must end after it starts"):
        Window(start, start)
    with pytest.raises(Mistake, match="--to yesterday"):
        instant("yesterday", "--to")
    with pytest.raises(Mistake, match="--day yesterday: must be a date"):
        day("yesterday", "--day")
