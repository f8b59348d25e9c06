"""Byte code that is made at build time, into a folder that stands for an image's root."""

import importlib.util
import marshal
import struct
import types
from pathlib import Path

import pytest

from support.image_tools import image_tool

bytecode = image_tool("bytecode")

#: The flags in the header of byte code that is never compared with its source (PEP 552).
UNCHECKED_HASH = 0b01


def cached(source: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(source)))


def flags(path: Path) -> int:
    found: int = struct.unpack("<I", path.read_bytes()[4:8])[0]
    return found


def code(path: Path) -> types.CodeType:
    found = marshal.loads(path.read_bytes()[16:])
    assert isinstance(found, types.CodeType)
    return found


def test_a_folder_of_the_stage_is_compiled_for_where_it_will_be(tmp_path: Path) -> None:
    source = tmp_path / "opt" / "pillion" / "one.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    assert bytecode.main([str(tmp_path), str(tmp_path / "opt" / "pillion")]) == 0
    assert flags(cached(source)) == UNCHECKED_HASH
    assert code(cached(source)).co_filename == "/opt/pillion/one.py"


def test_a_source_that_is_wrong_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("x = = 1\n")
    with pytest.raises(Exception, match="invalid syntax"):
        bytecode.compile_in_place(tmp_path, stage=tmp_path)


def test_of_the_standard_library_only_what_is_missing_is_made(tmp_path: Path) -> None:
    library, stage = tmp_path / "library", tmp_path / "stage"
    for name in ("json.py", "ready.py", "test/long.py", "idlelib/editor.py", "turtle.py"):
        path = library / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    cached(library / "ready.py").parent.mkdir()
    cached(library / "ready.py").write_bytes(b"made by the base")
    assert bytecode.compile_missing(library, stage=stage) == 1
    made = cached(library / "json.py")
    assert not made.exists()
    assert [path for path in stage.rglob("*") if path.is_file()] == [
        stage / made.relative_to(made.anchor)
    ]
    assert cached(library / "ready.py").read_bytes() == b"made by the base"
