"""The limit of open files of the process that runs the tests."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

MOST = 4096


@contextmanager
def many_descriptors() -> Iterator[None]:
    """Raise the soft limit to 4,096, or to the hard one where that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
