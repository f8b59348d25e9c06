"""Files of rules and of cases: YAML whose plain values are all texts."""

import glob
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml

from pillion_rules.errors import RuleError, shown

#: Maximum bytes of a file, and files of a pattern.
LARGEST_FILE = 2**20
MOST_FILES = 1_000
#: Maximum nesting of lists and objects.
DEEPEST = 32
#: Maximum entries of a file.
MOST_ENTRIES = 10_000


class _Loader(yaml.BaseLoader):
    """Resolves no types, so that ``on`` and ``1:30`` stay texts. Refuses aliases, which can grow
    without bound, and a key that is there twice, of which one would be ignored."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise self._error("an alias is not allowed")
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error(f"nested in more than {DEEPEST} levels")
        found = super().compose_node(parent, index)
        self._depth -= 1
        return found

    def _error(self, problem: str) -> yaml.MarkedYAMLError:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no text", problem_mark=key.start_mark)
            if key.value in found:
                problem = f"{shown(key.value)} is there twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            found.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: Path) -> Any:
    """The document of a file, with texts for all plain values. Raises RuleError."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        reason = error.strerror or error
        raise RuleError([f"{path}: cannot be read: {reason}; name a file of YAML"]) from None
    if len(content) > LARGEST_FILE:
        raise RuleError([f"{path}: larger than {LARGEST_FILE:,} bytes; split it"])
    try:
        return yaml.load(content.decode("utf-8"), Loader=_Loader)
    except UnicodeDecodeError:
        raise RuleError([f"{path}: is not UTF-8; save it as UTF-8"]) from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise RuleError([f"{path}{line}: {error.problem}; correct the YAML there"]) from None
    except yaml.YAMLError as error:
        text = " ".join(str(error).split())[:200]
        raise RuleError([f"{path}: {text}; correct the YAML"]) from None


class Named(Protocol):
    """What has a name that no other entry may have."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


def load_entries(
    paths: str | Path, list_name: str, make: Callable[[Mapping[str, Any]], Entry]
) -> tuple[Entry, ...]:
    """What ``make`` makes of the objects in the lists of a file, or of the files of a pattern.

    Raises RuleError with the problems of all files, those that ``make`` raises included."""
    problems: list[str] = []
    found: dict[str, tuple[Entry, Path]] = {}
    for path in _files(paths):
        try:
            entries = entries_of(path, list_name, most=MOST_ENTRIES)
        except RuleError as error:
            problems += error.problems
            continue
        for number, entry in enumerate(entries, 1):
            try:
                if not isinstance(entry, Mapping):
                    raise RuleError([f"entry {number}: {shown(entry)} is no object; write fields"])
                made = make(entry)
                if made.name in found:
                    before = found[made.name][1]
                    raise RuleError(
                        [f"{made.name}: name: {before} has this name too; use another one"]
                    )
                found[made.name] = (made, path)
            except RuleError as error:
                problems += (f"{path}: {problem}" for problem in error.problems)
    if problems:
        raise RuleError(problems)
    return tuple(made for made, _ in found.values())


def entries_of(path: Path, list_name: str, *, most: int) -> list[Any]:
    """The list that is all that a file has. Raises RuleError."""
    document = read_yaml(path)
    entries = document.get(list_name) if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or not entries or set(document) != {list_name}:
        raise RuleError(
            [f"{path}: is no file of {list_name}; write `{list_name}:` and a list, nothing else"]
        )
    if len(entries) > most:
        raise RuleError([f"{path}: {len(entries):,} {list_name}; write {most:,} at most in a file"])
    return entries


def _files(paths: str | Path) -> Iterable[Path]:
    if Path(paths).is_file():
        return [Path(paths)]
    found = sorted(Path(one) for one in glob.glob(str(paths), recursive=True))
    files = [one for one in found if one.is_file()]
    if not files:
        raise RuleError(
            [f"{paths}: no such file; name a file, or a pattern such as 'rules/*.yaml'"]
        )
    if len(files) > MOST_FILES:
        raise RuleError([f"{paths}: {len(files):,} files; load {MOST_FILES:,} at most"])
    return files
