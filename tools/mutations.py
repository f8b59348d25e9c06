"""Mutations: small changes of the source, addressed so that a rename, a move or a reformatting of
what is around them does not lose them.

A mutation names a definition (``pillion_sidecar.journal:SegmentWriter.write``: a package or module,
and what is defined anywhere below it) and the smallest text in it that it replaces. White space
does not count. What is no Python is addressed by its path.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE_ROOTS = ("cim", "sidecar", "spark", "cli", "operator", "plugin", "rules", "tools")

_Span = tuple[int, int]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class MutationError(Exception):
    """A mutation that cannot be applied: it names no such definition, or no such text in it."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """The change of one text in one definition."""

    #: ``package.module:Class.method``, or the path of a file that is no Python.
    within: str
    replace: str
    with_: str

    def apply(self, root: Path) -> tuple[Path, str]:
        """Return the file that changes, relative to ``root``, and its changed text.

        Raises MutationError where the text does not occur exactly once in the definition.
        """
        pattern = _pattern(self.replace)
        found = {
            (path, match.start() + start, match.end() + start)
            for path, text, (start, end) in self._scopes(root)
            for match in pattern.finditer(text[start:end])
        }
        if len(found) != 1:
            raise MutationError(
                f"{self.within}: {self.replace!r} occurs {len(found)} times, not once"
            )
        ((path, start, end),) = found
        text = (root / path).read_text(encoding="utf-8")
        changed = text[:start] + self.with_ + text[end:]
        if changed == text:
            raise MutationError(f"{self.within}: the mutation changes nothing")
        if path.suffix == ".py":
            try:
                compile(changed, str(path), "exec")
            except SyntaxError as error:
                raise MutationError(f"{self.within}: {self.with_!r} does not compile") from error
        return path, changed

    def _scopes(self, root: Path) -> Iterator[tuple[Path, str, _Span]]:
        if ":" not in self.within:
            path = root / self.within
            if path.suffix == ".py" or not path.is_file():
                raise MutationError(f"{self.within}: no such file, or one of Python")
            text = path.read_text(encoding="utf-8")
            yield Path(self.within), text, (0, len(text))
            return
        module, _, name = self.within.partition(":")
        defined = False
        for path in _modules(module, root):
            text = path.read_text(encoding="utf-8")
            for span in definitions(text).get(name, ()):
                defined = True
                yield path.relative_to(root), text, span
        if not defined:
            raise MutationError(f"{self.within}: no such definition")


def _modules(module: str, root: Path) -> Iterator[Path]:
    """The files of a module, or of a package and all below it."""
    for source_root in SOURCE_ROOTS:
        path = root / source_root / module.replace(".", "/")
        if path.with_suffix(".py").is_file():
            yield path.with_suffix(".py")
        yield from sorted(path.rglob("*.py"))


@cache
def definitions(text: str) -> dict[str, list[_Span]]:
    """Where functions, classes, methods and assigned names are defined, by qualified name.

    A property has as many definitions of one name as it has accessors.
    """
    lines = text.split("\n")  # as the parser counts them
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(line: int, column: int) -> int:
        # The parser counts a column in bytes.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found: dict[str, list[_Span]] = {}

    def visit(body: list[ast.stmt], prefix: str, of_function: bool) -> None:
        for node in body:
            is_definition = isinstance(node, _DEFINITIONS)
            if is_definition or not of_function:
                end = offset(node.end_lineno or 0, node.end_col_offset or 0)
                for name in _names(node):
                    found.setdefault(prefix + name, []).append((offset(node.lineno, 0), end))
            if isinstance(node, _DEFINITIONS):
                visit(node.body, f"{prefix}{node.name}.", not isinstance(node, ast.ClassDef))

    visit(ast.parse(text).body, "", of_function=False)
    return found


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _pattern(text: str) -> re.Pattern[str]:
    """A pattern for a text in which white space may be anything where it separates no two words."""
    lexemes = re.findall(r"\w+|[^\w\s]", text)
    pattern = ""
    for before, lexeme in zip(["", *lexemes], lexemes, strict=False):
        both_words = _is_word(before) and _is_word(lexeme)
        pattern += ("" if not before else r"\s+" if both_words else r"\s*") + re.escape(lexeme)
    start = r"\b" if lexemes and _is_word(lexemes[0]) else ""
    end = r"\b" if lexemes and _is_word(lexemes[-1]) else ""
    return re.compile(start + pattern + end)


def _is_word(lexeme: str) -> bool:
    return bool(re.fullmatch(r"\w+", lexeme))
