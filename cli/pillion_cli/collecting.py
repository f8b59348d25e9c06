"""Keeps the garbage collector away from a large configuration.

A collection of everything holds every thread up, delivery too: 0.1 s for 10,000 destinations, and
several of them for each load. For the process's owner to use: the collector belongs to all.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects that may be left to the collector: a few milliseconds of its work.
MOST_LEFT = 20_000


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect nothing meanwhile, and never look again at the many objects that it leaves.

    They go when nobody refers to them any more, as most do; only what stands in a cycle at the
    end stays for good, so the young generations are cleared of that at the beginning.
    """
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MOST_LEFT:
            gc.freeze()
        gc.enable()
