"""The audit finds each kind of fault, by its name, and finds nothing where nothing is wrong."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark.pipelines import audit
from tests.spark.conftest import Lived


def test_a_mixed_load_is_clean(spark: SparkSession, lived: Lived) -> None:
    found = audit.run(spark, lived.dsn)
    assert (found.counts, found.older) == ({}, 0), "\n".join(audit.told(found))
    assert found.events == lived.events
