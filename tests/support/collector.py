"""Python's garbage collector, out of the way."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """Nothing is collected within: what stays in a cycle is seen."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
