"""Replaces a file in one step."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(target: Path, content: bytes, *, prefix: str) -> Iterator[str]:
    """Write the content to a new file beside the target, whose name begins with ``prefix``, and
    yield its path; it replaces the target once the block ends without an error. Only its owner may
    read it unless the block changes that. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=prefix, dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield name
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
