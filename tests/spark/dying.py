"""Run by test_kills.py: writes of three kinds side by side in one session, each up to a lock that the test holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from unittest.mock import patch

from pyspark.sql import SparkSession

from spark import __main__ as command
from spark import source
from spark.session import session

PATIENCE = 120  # seconds


def follow(spark: SparkSession, folder: str, checkpoint: str, dsn: str, topic: str) -> None:
    """Puts the lines of the folder's files into a topic, a file in each micro-batch, up to the last one."""
    source.register(spark)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(folder).selectExpr("value AS payload")
    options = {"dsn": dsn, "topic": topic, "checkpointLocation": checkpoint}
    query = lines.writeStream.format("holdfast").options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE), "it goes on and on"


def main(pipelines: list[list[str]], stream: list[str]) -> None:
    """`pipelines`: the words of each, as `python -m spark` takes them. `stream`: what `follow` takes."""
    with session("to be killed", master="local[2]") as spark:

        @contextmanager
        def this_one(*_: object, **__: object) -> Iterator[SparkSession]:
            yield spark

        def pipeline(*words: str) -> None:
            spark.createDataFrame([], "n int")  # makes it the active session of this thread
            command.main(words)

        def follows(*asked: str) -> None:
            spark.createDataFrame([], "n int")
            follow(spark, *asked)

        threads = [Thread(target=pipeline, args=words) for words in pipelines] + [Thread(target=follows, args=stream)]
        with patch("spark.running.session", this_one):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
