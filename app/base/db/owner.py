"""Which process stops the embedded server: the one that holds an flock, which the kernel lets go with the process."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path


class OwnerLock:
    """Held by one process at a time, and within it by one object. Its file has the holder's number, for messages."""

    def __init__(self) -> None:
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def take(self, path: Path) -> bool:
        """Whether it is ours now. Does not wait."""
        if self._fd is not None:
            return True
        fd = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @staticmethod
    def holder(path: Path) -> str:
        """The number of the process that holds it, or held it last."""
        return path.read_text().strip()
