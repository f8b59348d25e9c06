"""aiohttp's server without its client: a deliverer has no use for it, and would pay a sixth of the
CPU of its start and 5 MiB."""

import sys
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec
from typing import Any


def defer_client() -> None:
    """Have ``aiohttp`` load its client when a name of it is first asked for. Does nothing after the
    import of ``aiohttp``."""
    spec = None if "aiohttp" in sys.modules else find_spec("aiohttp")
    if spec is None or spec.loader is None:
        return
    loader, package = spec.loader, module_from_spec(spec)

    def load_whole(name: str) -> Any:
        if find_spec(f"aiohttp.{name}") is not None:
            # Asked for by ``from aiohttp import web``, which then imports the module.
            raise AttributeError(name)
        del package.__getattr__
        loader.exec_module(package)
        return getattr(package, name)

    package.__getattr__ = load_whole  # type: ignore[method-assign]
    package.__version__ = version("aiohttp")  # type: ignore[attr-defined]
    sys.modules["aiohttp"] = package
