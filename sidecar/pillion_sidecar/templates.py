"""JSON templates: JSON whose texts have placeholders, such as ``${Message|Description:100}``.

A template is parsed once, as JSON. Only texts are filled, each value in the escapes of its place,
so no value can end its text. In ``${[FORM:]NAME[|NAME…][:LENGTH]}`` the first NAME with a value
counts. A NAME is one of :data:`WORDS`, or a property, which begins with a capital or ``_``.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

#: Maximum characters of a template, and how deep it may be nested.
LONGEST, DEEPEST = 16_384, 32
API_KEY_WORD = "apiKey"
#: Names that are no property.
WORDS = (
    "action",
    API_KEY_WORD,
    "class",
    "correlation",
    "discardAttempts",
    "discardDestination",
    "discardDetail",
    "discardReason",
    "ends",
    "filterName",
    "identifier",
    "properties",
    "sequenceContext",
    "sequenceNumber",
    "service",
    "severity",
    "source",
    "time",
)
_NAME = f"({'|'.join(WORDS)}|[A-Z_][A-Za-z0-9_]*)"
_INSIDE = rf"((json|slack):)?{_NAME}(\|{_NAME})*(:[1-9][0-9]{{0,5}})?"
#: For RE2 and Python: a text in which each placeholder is known.
KNOWN = rf"([^$]|\$+[^${{]|\$+\{{(\$|{_INSIDE})\}})*\$*"
UNKNOWN_REMEDY = (
    f"Write a property, which begins with a capital, or one of {', '.join(WORDS)}; "
    "${$} is a dollar sign."
)
#: For RE2 and Python: begins and ends as a JSON object or array.
JSON_LIKE = r"[ \t\r\n]*(\{(.|[\r\n])*\}|\[(.|[\r\n])*\])[ \t\r\n]*"
#: What a text with an API key contains.
API_KEY = f"${{{API_KEY_WORD}}}"

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}?")
_CONTENT = re.compile(_INSIDE)
_ELLIPSIS = "…"
_SHOWN = 40
#: The most bytes that JSON needs for a character.
_LONGEST_ESCAPE = 6
_encode = msgspec.json.encode


class TemplateError(Exception):
    """A text is no template. ``message`` names the place."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Form(StrEnum):
    TEXT = ""
    #: The value itself, instead of the text.
    JSON = "json"
    #: With Slack's entities for ``&``, ``<`` and ``>``.
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Placeholder:
    form: Form
    names: tuple[str, ...]
    #: Maximum characters, in form JSON bytes; None: no limit.
    length: int | None


@dataclass(frozen=True, slots=True)
class Template:
    """JSON in bytes, and the placeholders between."""

    parts: tuple[bytes | Placeholder, ...]

    @property
    def names(self) -> frozenset[str]:
        """The words and properties that it contains."""
        holders = [part for part in self.parts if isinstance(part, Placeholder)]
        return frozenset(name for holder in holders for name in holder.names)

    def fill(self, words: Mapping[str, object], properties: Mapping[str, object]) -> bytes:
        """``properties``: by lower-case name, since names are case-insensitive. Raises TypeError or
        OverflowError for a value that JSON cannot express."""
        return b"".join(
            part if isinstance(part, bytes) else _filled(part, words, properties)
            for part in self.parts
        )


def parse_template(text: str) -> Template:
    """Raises TemplateError."""
    return _template(_parts(_parsed(text), "", DEEPEST))


def parse_text(text: str) -> Template:
    """Parse a text with placeholders; the template is one JSON text. Raises TemplateError."""
    parts = list(_text_parts(text, "the text"))
    if isinstance(parts[0], Placeholder):
        raise TemplateError("the text has json:, whose value is no text", "Remove json:.")
    return _template(parts)


def _template(found: Iterable[bytes | Placeholder]) -> Template:
    parts: list[bytes | Placeholder] = []
    for part in found:
        if isinstance(part, bytes) and parts and isinstance(parts[-1], bytes):
            parts[-1] += part
        else:
            parts.append(part)
    return Template(tuple(parts))


def _parsed(text: str) -> Any:
    remedy = "Write JSON; placeholders stand inside its texts, in quotes."
    try:
        document = json.loads(
            text, object_pairs_hook=_object, parse_constant=_number, parse_float=_number
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise TemplateError(f"{place}: it is no JSON ({error.msg})", remedy) from None
    except ValueError as error:
        raise TemplateError(f"it is no JSON: {error}", remedy) from None
    except RecursionError:
        raise _too_deep("") from None
    if not isinstance(document, dict | list):
        raise TemplateError("it is no JSON object or array", remedy)
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice[:_SHOWN]!r} twice")
    return found


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:_SHOWN]} cannot be sent")
    return number


def _too_deep(path: str) -> TemplateError:
    place = f"{path}: " if path else ""
    return TemplateError(f"{place}it is nested more than {DEEPEST} deep", "Write it flatter.")


def _parts(value: Any, path: str, deeper: int) -> Iterator[bytes | Placeholder]:
    if deeper < 0:
        raise _too_deep(path[:200])
    if isinstance(value, dict):
        yield b"{"
        for number, (name, below) in enumerate(value.items()):
            if "${" in name:
                raise TemplateError(
                    f"{path or 'the object'} has the name {name[:_SHOWN]!r} with a placeholder",
                    "Write placeholders in values.",
                )
            yield (b"," if number else b"") + encoded(name) + b":"
            yield from _parts(below, f"{path}.{name[:_SHOWN]}".removeprefix("."), deeper - 1)
        yield b"}"
    elif isinstance(value, list):
        yield b"["
        for number, below in enumerate(value):
            yield b"," if number else b""
            yield from _parts(below, f"{path}[{number}]", deeper - 1)
        yield b"]"
    elif isinstance(value, str):
        yield from _text_parts(value, path)
    else:
        yield json.dumps(value).encode()


def _text_parts(text: str, path: str) -> Iterator[bytes | Placeholder]:
    whole = _PLACEHOLDER.fullmatch(text)
    if whole is not None and whole[1] != "$":
        placeholder = _placeholder(whole, path)
        if placeholder.form is Form.JSON:
            yield placeholder
            return
    yield b'"'
    end = 0
    for found in _PLACEHOLDER.finditer(text):
        yield _inside(text[end : found.start()])
        end = found.end()
        if found[0] == "${$}":
            yield b"$"
            continue
        placeholder = _placeholder(found, path)
        if placeholder.form is Form.JSON:
            raise TemplateError(
                f"{path}: {_shown(found)} is not alone in its text",
                "Remove json:, or the rest of the text.",
            )
        yield placeholder
    yield _inside(text[end:]) + b'"'


def _placeholder(found: re.Match[str], path: str) -> Placeholder:
    content = _CONTENT.fullmatch(found[1])
    if content is None or not found[0].endswith("}"):
        raise TemplateError(
            f"{path}: {_shown(found)} is no placeholder that is known",
            f"Write a property, which begins with a capital, or one of {', '.join(WORDS)}; "
            "${$} is a dollar sign.",
        )
    form, rest = Form(content[2] or ""), found[1].removeprefix(content[1] or "")
    names, _, length = rest.partition(":")
    if form is not Form.JSON and "properties" in names.split("|"):
        raise TemplateError(
            f"{path}: {_shown(found)} has no json:", "Write ${json:properties}, alone in its text."
        )
    return Placeholder(form, tuple(names.split("|")), int(length) if length else None)


def _shown(found: re.Match[str]) -> str:
    return repr(found[0][:_SHOWN])


def _filled(
    holder: Placeholder, words: Mapping[str, object], properties: Mapping[str, object]
) -> bytes:
    value = None
    for name in holder.names:
        value = words[name] if name in words else properties.get(name.lower())
        if value is not None and value != "":
            break
    if holder.form is Form.JSON:
        return _json(value, holder.length)
    text = _as_text(value)
    if holder.form is Form.SLACK:
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if holder.length is not None and len(text) > holder.length:
        text = _cut(text, holder)
    return _inside(text)


def _json(value: object, length: int | None) -> bytes:
    whole = encoded(value)
    if length is None or len(whole) <= length:
        return whole
    # As a text, it needs quotes and more escapes.
    most = (length - 2) // _LONGEST_ESCAPE
    return encoded(whole.decode()[: max(most, 1) - 1] + _ELLIPSIS)


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else encoded(value).decode()


def _cut(text: str, holder: Placeholder) -> str:
    assert holder.length is not None
    kept = text[: holder.length - 1]
    if holder.form is Form.SLACK:
        before, ampersand, entity = kept.rpartition("&")
        if ampersand and ";" not in entity:
            # Not half an entity.
            kept = before
    return kept + _ELLIPSIS


def _inside(text: str) -> bytes:
    return encoded(text)[1:-1]


def encoded(value: object) -> bytes:
    """JSON, with ``?`` for each half of a surrogate pair: UTF-8 has none."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")
