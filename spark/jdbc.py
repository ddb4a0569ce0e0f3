"""Spark's own JDBC, with the address of a libpq URL."""

from __future__ import annotations

from urllib.parse import quote

from pyspark.sql import DataFrame

from spark.errors import Mistake
from spark.source.connection import parsed


def options(dsn: str) -> dict[str, str]:
    """Spark's options for a postgresql:// address. Raises Mistake: JDBC knows no socket of the file system."""
    given = parsed(dsn)
    host = given.get("hostaddr") or given.get("host", "localhost")
    if host.startswith(("/", "@")):
        raise Mistake("--dsn: JDBC needs a host, and not a socket's folder")
    place = f"[{host}]" if ":" in host else host
    database = quote(given.get("dbname") or given.get("user", "postgres"), safe="")
    found = {
        "url": f"jdbc:postgresql://{place}:{given.get('port', '5432')}/{database}",
        "driver": "org.postgresql.Driver",
        "stringtype": "unspecified",  # a string becomes whatever the column is
        "reWriteBatchedInserts": "true",
        "ApplicationName": "holdfast spark jdbc",
    }
    for name, to in (
        ("user", "user"),
        ("password", "password"),
        ("sslmode", "sslmode"),
        ("sslrootcert", "sslrootcert"),
    ):
        if name in given:
            found[to] = given[name]
    return found


def append(frame: DataFrame, dsn: str, table: str) -> None:
    """Append a frame to a table. Not one transaction: a task that is tried again may have added its rows before."""
    frame.write.format("jdbc").options(**options(dsn)).option("dbtable", table).mode("append").save()
