"""Byte-compiles at build time what a container imports: its root is read-only, so it could never
keep the result, and would compile anew at each start. Standard library only; a builder stage runs
it: ``python3 bytecode.py STAGE [FOLDER…] [--standard-library]``.

STAGE stands for the image's root; each FOLDER lies in it. The official Python images come without
byte code of the standard library: the option makes what is missing, and puts it into STAGE too.
Byte code is of the kind that is never compared with its source, so it holds whatever becomes of
time stamps as layers are copied.
"""

import importlib.util
import py_compile
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

#: Of the standard library, what no service imports.
NEVER_IMPORTED = re.compile(
    r"(^|/)(test|tests|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data|distutils"
    r"|site-packages|dist-packages|__pycache__)(/|$)|^(turtle|antigravity|this)\.py$"
)


def sources(folder: Path) -> Iterator[Path]:
    """Python's sources below a folder, but for what is never imported."""
    for path in sorted(folder.rglob("*.py")):
        if not NEVER_IMPORTED.search(path.relative_to(folder).as_posix()):
            yield path


def compile_missing(folder: Path, *, stage: Path) -> int:
    """Compile what has no byte code yet, into ``stage``; returns how many files that were."""
    made = 0
    for source in sources(folder):
        cached = Path(importlib.util.cache_from_source(str(source)))
        if cached.exists():
            continue
        into = stage / cached.relative_to(cached.anchor)
        _compile(source, into=into, known_as=source)
        made += 1
    return made


def compile_in_place(folder: Path, *, stage: Path) -> int:
    """Compile all that lies below a folder of the stage; it will be found without ``stage``."""
    made = 0
    for source in sorted(folder.rglob("*.py")):
        cached = Path(importlib.util.cache_from_source(str(source)))
        _compile(source, into=cached, known_as=Path("/") / source.relative_to(stage))
        made += 1
    return made


def _compile(source: Path, *, into: Path, known_as: Path) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    py_compile.compile(
        str(source),
        cfile=str(into),
        dfile=str(known_as),
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def main(arguments: list[str]) -> int:
    """Compile the folders in place and, where asked, the standard library into the stage."""
    stage, *folders = (Path(word) for word in arguments if not word.startswith("--"))
    made = sum(compile_in_place(folder, stage=stage) for folder in folders)
    if "--standard-library" in arguments:
        made += compile_missing(Path(sysconfig.get_path("stdlib")), stage=stage)
    print(f"byte code of {made} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
