"""Spark's own JDBC, with the address of a libpq URL."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from pyspark.sql import DataFrame

from spark.errors import Mistake
from spark.source.connection import connect, parsed

SCHEME: Final = "jdbc:postgresql:"
DRIVER: Final = "org.postgresql.Driver"
# What libpq's parameters are in JDBC; those that have done their work once a connection is open; and the rest, of which
# a value other than libpq's own may be what keeps a connection safe, is refused.
SAME: Final = ("user", "password", "sslmode", "sslrootcert", "options")
DONE: Final = (
    *("service", "host", "hostaddr", "port", "dbname", "passfile", "target_session_attrs", "load_balance_hosts"),
    *("connect_timeout", "application_name", "fallback_application_name", "client_encoding", "tcp_user_timeout"),
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "sslsni", "sslcompression"),
)
FILLED: Final = ((b"sslcertmode", b"allow"), (b"gssencmode", b"prefer"))  # by libpq itself


def options(dsn: str) -> dict[str, str]:
    """Spark's options for the database that libpq finds by `dsn`: by its services, environment and passwords, too.

    Raises Mistake: for what JDBC has not, such as sockets of the file system.
    """
    asked = parsed(dsn)
    with contextlib.closing(connect(dsn, read_only=True, purpose="jdbc")) as connection:
        info = connection.info
        given = {
            one.keyword.decode(): one.val.decode()
            for one in connection.pgconn.info
            if one.val is not None and one.val != one.compiled and (one.keyword, one.val) not in FILLED
        }
        # The open one's: of several hosts one, and of a password file the password.
        given |= {"host": info.host, "port": str(info.port), "dbname": info.dbname, "user": info.user}
        if given.get("hostaddr"):
            given["hostaddr"] = info.hostaddr
        if info.password:
            given["password"] = info.password
    given["options"] = asked.get("options", "")  # without those of `connect`
    return translated({name: value for name, value in given.items() if value})


def translated(given: Mapping[str, str]) -> dict[str, str]:
    """libpq's parameters as Spark's options. Raises Mistake."""
    for name in given:
        if name not in SAME + DONE:
            raise Mistake(f"dsn, or libpq's environment: JDBC has nothing for the parameter {name}")
    host = given.get("hostaddr") or given["host"]
    if host.startswith(("/", "@")):
        raise Mistake("dsn: JDBC needs a host, and not a socket's folder")
    place = f"[{host}]" if ":" in host else host
    database = quote(given["dbname"], safe="")
    found = {
        "url": f"{SCHEME}//{place}:{given['port']}/{database}",
        "driver": DRIVER,
        "stringtype": "unspecified",  # a string becomes whatever the column is
        "reWriteBatchedInserts": "true",
        "ApplicationName": "holdfast spark jdbc",
    }
    return found | {name: given[name] for name in SAME if name in given}


def append(frame: DataFrame, dsn: str, table: str) -> None:
    """Append a frame to a table. Not one transaction: a task that is tried again may have added its rows before."""
    frame.write.format("jdbc").options(**options(dsn)).option("dbtable", table).mode("append").save()
