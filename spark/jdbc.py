"""Spark's own JDBC source, with the address from a libpq URL."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from pyspark.sql import DataFrame

from spark.errors import Mistake
from spark.source.connection import connect, parse_dsn

SCHEME: Final = "jdbc:postgresql:"
DRIVER: Final = "org.postgresql.Driver"
# SAME: libpq parameters that JDBC has under the same name. DONE: parameters that matter only until a connection is
# open. All others are refused, because they may be what keeps a connection secure.
SAME: Final = ("user", "password", "sslmode", "sslrootcert", "options")
DONE: Final = (
    *("service", "host", "hostaddr", "port", "dbname", "passfile", "target_session_attrs", "load_balance_hosts"),
    *("connect_timeout", "application_name", "fallback_application_name", "client_encoding", "tcp_user_timeout"),
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "sslsni", "sslcompression"),
)
FILLED: Final = ((b"sslcertmode", b"allow"), (b"gssencmode", b"prefer"))  # defaults that libpq fills in


def options(dsn: str) -> dict[str, str]:
    """Spark's JDBC options for the database that libpq finds by `dsn`, its services, environment and password files.

    Raises Mistake for settings that JDBC does not have, such as Unix sockets.
    """
    asked = parse_dsn(dsn)
    with contextlib.closing(connect(dsn, read_only=True, purpose="jdbc")) as connection:
        info = connection.info
        given = {
            one.keyword.decode(): one.val.decode()
            for one in connection.pgconn.info
            if one.val is not None and one.val != one.compiled and (one.keyword, one.val) not in FILLED
        }
        # From the open connection: one of several hosts, and the password from a password file.
        given |= {"host": info.host, "port": str(info.port), "dbname": info.dbname, "user": info.user}
        if given.get("hostaddr"):
            given["hostaddr"] = info.hostaddr
        if info.password:
            given["password"] = info.password
    given["options"] = asked.get("options", "")  # without the ones that `connect` adds
    return to_spark_options({name: value for name, value in given.items() if value})


def to_spark_options(given: Mapping[str, str]) -> dict[str, str]:
    """Translate libpq's parameters to Spark's options. Raises Mistake."""
    for name in given:
        if name not in SAME + DONE:
            raise Mistake(f"dsn or libpq's environment: JDBC does not support the parameter {name}")
    host = given.get("hostaddr") or given["host"]
    if host.startswith(("/", "@")):
        raise Mistake("dsn: JDBC needs a host, not a socket's folder")
    place = f"[{host}]" if ":" in host else host
    database = quote(given["dbname"], safe="")
    found = {
        "url": f"{SCHEME}//{place}:{given['port']}/{database}",
        "driver": DRIVER,
        "stringtype": "unspecified",  # PostgreSQL converts strings to the column's type
        "reWriteBatchedInserts": "true",
        "ApplicationName": "holdfast spark jdbc",
    }
    return found | {name: given[name] for name in SAME if name in given}


def append(frame: DataFrame, dsn: str, table: str) -> None:
    """Append a frame to a table. Not one transaction: a retried task may add its rows twice."""
    frame.write.format("jdbc").options(**options(dsn)).option("dbtable", table).mode("append").save()
