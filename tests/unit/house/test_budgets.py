"""Small modules: a function fits a screen, a module has one concern."""

import ast
from collections.abc import Iterator

import pytest

from support.house import ROOT, sources

FUNCTION_LINES = 60
MODULE_LINES = 600


def long_functions(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield node.name, lines


def test_no_function_is_longer_than_a_screen() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name} has {lines} lines"
        for path in sources()
        for name, lines in long_functions(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_module_has_outgrown_its_concern() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources()
    }
    assert {name: size for name, size in sizes.items() if size > MODULE_LINES} == {}


@pytest.mark.parametrize(("lines", "found"), [(FUNCTION_LINES, 0), (FUNCTION_LINES + 1, 1)])
def test_the_measure_counts_the_def_line_and_all_below_it(lines: int, found: int) -> None:
    source = "async def f():\n" + "    pass\n" * (lines - 1)
    assert len(list(long_functions(source))) == found
