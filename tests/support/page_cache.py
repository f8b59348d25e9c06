"""Whether a file system tells what of a file its page cache holds: one of a disk does, and one in
memory does not."""

import errno
import os
from pathlib import Path


def tells_what_it_holds(folder: Path) -> bool:
    """Ask with a file in ``folder``."""
    path = folder / "asked"
    path.write_bytes(b"a")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        return False
    finally:
        os.close(descriptor)
        path.unlink()
    return True
