"""Folders of any file system that Spark reaches: local, HDFS, object stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark.errors import Mistake


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is listed: its whole address, its bytes, and when it was changed, in ms since 1970."""

    path: str
    size: int
    changed_ms: int


class Folder:
    """A folder that may not be there yet. Raises Mistake for an address that no file system is known for."""

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
        """What lies in it, sorted; nothing if it is not there."""
        if not self._fs.exists(self._path):
            return []
        return sorted(one.getPath().getName() for one in self._fs.listStatus(self._path))

    def read(self, name: str) -> str | None:
        """A small text file; None if it is not there. Raises OSError if it can't be read."""
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
        """A small text file, whole or not at all; it replaces one of the name."""
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
        """A file in it, or all of it; it need not be there."""
        self._fs.delete(self._path if name is None else self._at(name), True)

    def move(self, name: str) -> str:
        """Beside where it is, under another name that nothing has: where it is then. Raises OSError if it can't be."""
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


def listed(spark: SparkSession, paths: list[str]) -> list[File]:
    """The files that these addresses mean; each may have wildcards, or be a folder, whose files are meant however deep
    they lie. Hidden ones (_… and .…) are left out, as Spark does. Raises Mistake for an address that means none."""
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
