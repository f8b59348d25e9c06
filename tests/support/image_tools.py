"""The programs of ``images/`` that builder stages run, as modules: they belong to no package."""

import importlib.util
import sys
from types import ModuleType

from support.house import ROOT

#: Before their names, so that they collide with nothing.
PREFIX = "pillion_images_"


def image_tool(name: str) -> ModuleType:
    """Import ``images/NAME.py``."""
    full = f"{PREFIX}{name}"
    if full not in sys.modules:
        specification = importlib.util.spec_from_file_location(full, ROOT / "images" / f"{name}.py")
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        # dataclasses look their module up while it is executed.
        sys.modules[full] = module
        specification.loader.exec_module(module)
    return sys.modules[full]
