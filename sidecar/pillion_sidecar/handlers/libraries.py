"""Loads what only some destinations need, so that an idle deliverer does not have it in memory."""

import asyncio
import importlib
from types import ModuleType


async def load(module: str) -> ModuleType:
    """Import ``module`` in a thread: a large library takes longer than the event loop may wait.
    Raises what the import raises."""
    return await asyncio.to_thread(importlib.import_module, module)
