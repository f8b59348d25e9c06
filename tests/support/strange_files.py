"""What may lie in a resource folder and is no resource file."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def _loop(file: Path) -> None:
    file.symlink_to(file.name)


def _unreadable(file: Path) -> None:
    file.write_text("a: 1")
    file.chmod(0)


def _huge(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(2**40)


def _name_outside_utf8(file: Path) -> None:
    Path(os.fsdecode(os.fsencode(file.parent) + b"/\xff\xfe.yaml")).write_text("a: 1")


STRANGE: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a link to nowhere": lambda file: file.symlink_to("nowhere"),
    "a link to itself": _loop,
    "a link to its folder": lambda file: file.symlink_to("."),
    "a link to a device": lambda file: file.symlink_to("/dev/zero"),
    "a link to a file of the kernel": lambda file: file.symlink_to("/proc/self/mem"),
    "a named pipe": os.mkfifo,
    "a file that may not be read": _unreadable,
    "a file of a terabyte": _huge,
    "a name outside UTF-8": _name_outside_utf8,
    "an empty file": Path.touch,
    "NULs": lambda file: file.write_bytes(bytes(1000)),
    "UTF-16": lambda file: file.write_text("a: 1", encoding="utf-16"),
    "very deep": lambda file: file.write_text("[" * 100_000),
    "a very long number": lambda file: file.write_text("9" * 100_000),
    "a very long line": lambda file: file.write_text("a: " + "x" * 1_000_000),
}


@contextmanager
def strange_file(folder: Path, name: str, what: str) -> Iterator[None]:
    """One of ``STRANGE`` in a folder, for as long as the context lasts."""
    before = set(folder.iterdir())
    STRANGE[what](folder / name)
    yield
    for made in set(folder.iterdir()) - before:
        if made.is_dir() and not made.is_symlink():
            made.rmdir()
        else:
            made.unlink()
