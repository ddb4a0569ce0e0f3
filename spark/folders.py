"""Folders on any file system that Spark reaches: local, HDFS, object stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark.errors import Mistake


@dataclass(frozen=True, slots=True)
class File:
    """A listed file: its full address, its size in bytes, and its modification time in ms since 1970."""

    path: str
    size: int
    changed_ms: int


class Folder:
    """A folder that need not exist yet. Raises Mistake if no file system is known for the address."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        context: Any = spark.sparkContext._jsc
        named = jvm.org.apache.hadoop.fs.Path(path)
        try:
            self._fs: Any = named.getFileSystem(context.hadoopConfiguration())
            self._path: Any = self._fs.makeQualified(named)
        except Py4JJavaError as error:
            raise Mistake(f"{path}: {error.java_exception.getMessage()}") from None
        self.path: str = self._path.toString()

    def __truediv__(self, name: str) -> Folder:
        return Folder(self._spark, f"{self.path}/{name}")

    def names(self) -> list[str]:
        """The names in the folder, sorted; none if it does not exist."""
        if not self._fs.exists(self._path):
            return []
        return sorted(one.getPath().getName() for one in self._fs.listStatus(self._path))

    def read(self, name: str) -> str | None:
        """The text of a small file; None if it does not exist. Raises OSError if it can't be read."""
        path = self._at(name)
        try:
            if not self._fs.exists(path):
                return None
            stream = self._fs.open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise OSError(f"{path.toString()}: {error.java_exception.getMessage()}") from None

    def write(self, name: str, text: str) -> None:
        """Write a small text file atomically, replacing one of the same name. Raises OSError."""
        draft, path = self._at(f"_{name}.draft"), self._at(name)
        stream = self._fs.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._fs.delete(path, False)
        if not self._fs.rename(draft, path):
            raise OSError(f"{draft.toString()} could not be renamed to {path.toString()}")

    def delete(self, name: str | None = None) -> None:
        """Delete a file in the folder, or the folder itself. It need not exist."""
        self._fs.delete(self._path if name is None else self._at(name), True)

    def move(self, name: str) -> str:
        """Rename the folder to an unused name beside it. Returns the new address. Raises OSError."""
        path = self._jvm.org.apache.hadoop.fs.Path(self._path.getParent(), name)
        try:
            is_moved = not self._fs.exists(path) and self._fs.rename(self._path, path)
        except Py4JJavaError as error:
            raise OSError(f"{self.path}: {error.java_exception.getMessage()}") from None
        if not is_moved:
            raise OSError(f"{self.path} could not be renamed to {path.toString()}")
        return str(path.toString())

    def exists(self) -> bool:
        return bool(self._fs.exists(self._path))

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)


def list_files(spark: SparkSession, paths: list[str]) -> list[File]:
    """The files at these addresses, sorted. An address may have wildcards, or be a folder, which is read recursively.

    Hidden files (_… and .…) are left out, as Spark does. Raises Mistake for an address without files."""
    found: dict[str, File] = {}
    for path in paths:
        folder = Folder(spark, path)
        matches = folder._fs.globStatus(folder._path) or []
        files = [file for match in matches for file in _files(folder._fs, match)]
        if not files:
            raise Mistake(f"{path}: there is no such file")
        found |= {file.path: file for file in files}
    return [found[path] for path in sorted(found)]


def _files(fs: Any, status: Any) -> list[File]:
    if status.isFile():
        return [File(status.getPath().toString(), status.getLen(), status.getModificationTime())]
    inside = (one for one in fs.listStatus(status.getPath()) if not one.getPath().getName().startswith(("_", ".")))
    return [file for one in inside for file in _files(fs, one)]
