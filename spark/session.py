"""The Spark session of the pipelines, on a laptop or on a cluster."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from spark.errors import Mistake

JAR = "POSTGRES_JDBC_JAR"
DEBIANS_JAR = Path("/usr/share/java/postgresql.jar")
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it for the driver that it starts
PACKAGE = Path(__file__).parent

# For a local master: quick to start, quiet, not reachable from outside. On a cluster, spark-submit configures this.
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.redaction.options.regex": "(?i)url|dsn",  # Spark hides urls only; a dsn contains a password, too
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # 1e5 is a topic's folder
    "spark.ui.showConsoleProgress": "false",  # spark.progress replaces it
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the common representation
}


# They log a page of JSON for an invalid expression; the error says enough.
VERBOSE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def session(name: str, *, master: str | None = None) -> Iterator[SparkSession]:
    """A session with the data source, the JDBC driver if it is found, and this package on its executors.

    `master` is Spark's; default: spark-submit's, or local[*]. Raises Mistake if Java is missing.
    """
    if SUBMITTED in os.environ:  # its JVM already runs and has the settings of spark-submit
        SparkContext._ensure_initialized()
    conf = SparkConf()
    given = master or conf.get("spark.master", None)
    is_local = given is None or given.startswith("local[") or given == "local"
    if SUBMITTED not in os.environ and _java() is None:
        raise Mistake("Spark needs Java 17 or newer: install a JRE (apt-get install openjdk-17-jre-headless)")
    # Otherwise executors run the first python3 in their PATH, which lacks the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for logger in VERBOSE:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    builder = SparkSession.builder.appName(name).master(given or "local[*]")
    for key, value in ((LOCAL if is_local else {}) | ALWAYS).items():
        if not conf.contains(key):
            builder = builder.config(key, value)
    jar = driver_jar()
    if jar is not None and not conf.contains("spark.jars"):
        builder = builder.config("spark.jars", str(jar))
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        with TemporaryDirectory() as folder:
            came_in_an_archive = not PACKAGE.is_dir()  # from --py-files, which executors have, too
            if not is_local and not came_in_an_archive:
                spark.sparkContext.addPyFile(str(zipped(Path(folder))))
            yield spark
    finally:
        with suppress(Py4JError, OSError):  # the JVM may have ended
            spark.sparkContext.setLogLevel("OFF")  # tasks that are still running are stopped, which is not an error
        spark.stop()


def driver_jar() -> Path | None:
    """PostgreSQL's JDBC driver: that of POSTGRES_JDBC_JAR, Debian's, or None. Raises Mistake if it is missing."""
    if os.environ.get(JAR):
        named = Path(os.environ[JAR])
        if not named.is_file():
            raise Mistake(f"{JAR}={named}: there is no such file")
        return named
    return DEBIANS_JAR if DEBIANS_JAR.is_file() else None


def zipped(folder: Path) -> Path:
    """Pack this package as an archive for --py-files. Returns its path. `make spark-zip` calls it."""
    path = folder / "holdfast-spark.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(PACKAGE.parent))
    return path


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
