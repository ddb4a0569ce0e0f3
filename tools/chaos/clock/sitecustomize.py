"""Python imports this at its start where the folder is on the path: the process' clock on the wall is off by as many
seconds as a file says, which whoever runs it can change at any time. The clock that only goes forward stays as it is,
and so does `datetime.now`, whose class can't be replaced."""

import mmap
import os
import struct
import time
from pathlib import Path

if "CHAOS_CLOCK" in os.environ:
    with Path(os.environ["CHAOS_CLOCK"]).open("rb") as file:
        _off = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    _seconds, _of = time.time, struct.Struct("d").unpack_from
    time.time = lambda: _seconds() + _of(_off)[0]
    time.time_ns = lambda: int(time.time() * 1e9)
