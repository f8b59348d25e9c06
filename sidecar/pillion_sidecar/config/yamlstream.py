"""YAML and JSON documents with line numbers, bounded. Built on parser events: depth is bounded,
duplicate keys are seen, aliases are refused, and scalars follow the YAML 1.2 core schema (``on`` is
a text, ``1:30`` no number)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

#: Maximum nesting of objects and lists.
DEEPEST = 32
MOST_NODES = 1_000_000

Path = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_OCTAL = re.compile(r"0o[0-7]{1,40}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,6})?")
_WORDS = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

_CHECK = "Check the indentation and the quotes around here."


class StreamError(Exception):
    """Problem, remedy and line (from 1; 0: unknown)."""

    def __init__(self, message: str, *, remedy: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.line = line


@dataclass(frozen=True, slots=True)
class YAMLDocument:
    """A JSON value, and the line (from 1) of each value by path."""

    value: Any
    lines: dict[Path, int]


@dataclass(slots=True)
class _Open:
    value: dict[str, Any] | list[Any]
    path: Path
    key: str | None = None

    def next_path(self) -> Path:
        last = self.key if isinstance(self.value, dict) else len(self.value)
        assert last is not None
        return (*self.path, last)


@dataclass(slots=True)
class _Builder:
    open: list[_Open] = field(default_factory=list)
    lines: dict[Path, int] = field(default_factory=dict)
    root: Any = None

    def scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        top = self.open[-1] if self.open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._key(top, event.value, line)
        else:
            self._put(_scalar(event, line), line)

    def _key(self, top: _Open, key: str, line: int) -> None:
        if key in top.value:
            raise StreamError(
                f"the key {key[:80]!r} stands twice in one object",
                remedy="Write --- between two resources."
                if key == "apiVersion" and not top.path
                else "Keep one of the two.",
                line=line,
            )
        top.key = key

    def start(self, container: dict[str, Any] | list[Any], line: int) -> None:
        if len(self.open) >= DEEPEST:
            raise StreamError(
                f"objects and lists lie more than {DEEPEST} deep",
                remedy="No resource is that deep.",
                line=line,
            )
        top = self.open[-1] if self.open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            raise StreamError(
                "a key is an object or a list", remedy="Write a text as the key.", line=line
            )
        path = self._put(container, line)
        self.open.append(_Open(container, path))

    def end(self) -> None:
        self.open.pop()

    def _put(self, value: Any, line: int) -> Path:
        if not self.open:
            self.root = value
            self.lines[()] = line
            return ()
        top = self.open[-1]
        path = top.next_path()
        self.lines[path] = line
        if isinstance(top.value, dict):
            assert top.key is not None
            top.value[top.key] = value
            top.key = None
        else:
            top.value.append(value)
        return path


def _scalar(event: yaml.ScalarEvent, line: int) -> Any:
    if event.tag is not None and event.tag not in ("!", "tag:yaml.org,2002:str"):
        raise StreamError(
            f"the tag {str(event.tag)[:80]!r} is not understood",
            remedy="Write plain values, without tags.",
            line=line,
        )
    # The first is true for a scalar without quotes.
    plain = event.tag is None and event.implicit[0]
    return plain_scalar(event.value) if plain else event.value


def plain_scalar(text: str) -> Any:
    """Resolve an unquoted scalar by the YAML 1.2 core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def read_documents(text: str) -> Iterator[YAMLDocument]:
    """Yield nonempty documents. Raises StreamError at the first error."""
    try:
        yield from _documents(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        problem, remedy = error.problem or "unreadable", _CHECK
        if mark is not None and text[mark.index : mark.index + 1] == "\t":
            problem, remedy = "indentation contains a tab", "Indent with spaces."
        line = mark.line + 1 if mark else 0
        raise StreamError(f"is not YAML: {problem}", remedy=remedy, line=line) from None
    except yaml.YAMLError as error:
        raise StreamError(
            f"is not YAML: {' '.join(str(error).split())[:200]}",
            remedy="Write UTF-8 text without control characters.",
            line=0,
        ) from None


def _documents(text: str) -> Iterator[YAMLDocument]:
    builder = _Builder()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for count, event in enumerate(yaml.parse(text, Loader=loader)):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if count > 2 * MOST_NODES:
            raise StreamError(
                f"holds more than {MOST_NODES:,} values",
                remedy="Spread the resources over several files.",
                line=line,
            )
        match event:
            case yaml.DocumentStartEvent():
                builder = _Builder()
            case yaml.DocumentEndEvent():
                if builder.root is not None:
                    yield YAMLDocument(builder.root, builder.lines)
            case _:
                _feed(builder, event, line)


def _feed(builder: _Builder, event: yaml.Event, line: int) -> None:
    match event:
        case yaml.AliasEvent():
            raise StreamError(
                "aliases (*name) are not understood", remedy="Write the value out.", line=line
            )
        case yaml.ScalarEvent():
            builder.scalar(event, line)
        case yaml.MappingStartEvent():
            builder.start({}, line)
        case yaml.SequenceStartEvent():
            builder.start([], line)
        case yaml.CollectionEndEvent():
            builder.end()
