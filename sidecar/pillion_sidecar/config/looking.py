"""A look at a file: what tells one content of it from another, without reading it."""

import errno
import os
from pathlib import Path
from typing import TypeAlias

#: Device, inode, time of change (ns) and size of a file, behind any links, so that the swap of
#: ``..data`` by which Kubernetes updates a volume shows.
Look: TypeAlias = tuple[int, int, int, int]

#: The system's error numbers that say nothing of a file: it is short of descriptors or memory.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def look_at(path: str | Path) -> Look:
    """Look at a file. Raises OSError where it cannot be seen just now."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
