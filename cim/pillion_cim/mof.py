"""Reads class declarations from MOF (DSP0004 7, DSP0221 of CIM schema 2). It keeps superclass,
typed properties, and the qualifiers Abstract, Required, EmbeddedObject and EmbeddedInstance.
Methods, defaults, other qualifiers, aliases and pragmas are skipped."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pillion_cim import CIMDataError
from pillion_cim.model import CIMType, EmbeddedObject
from pillion_cim.schema import (
    MOST_CHARACTERS,
    MOST_CLASSES,
    ClassDeclaration,
    PropertyDeclaration,
)

#: In characters.
MOST_TEXT = 4 * 1024 * 1024
#: Declared by one class itself.
MOST_PROPERTIES = 1_000

_TOKEN = re.compile(
    r"(?P<space>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<pragma>\#pragma\b)"
    r'|(?P<text>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<char>'(?:[^'\\\n]|\\[^\n][0-9A-Fa-f]*)')"
    r"|(?P<word>[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)"
    r"|(?P<number>[+-]?[0-9.][0-9A-Za-z.]*(?:(?<=[eE])[+-][0-9]+)?)"
    r"|(?P<sign>[\[\]{}():;,=$])",
    re.DOTALL,
)
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_TYPES = frozenset(CIMType) - {CIMType.REFERENCE}


class MOFError(CIMDataError):
    """``line`` counts from 1."""

    def __init__(self, message: str, *, line: int, remedy: str = "") -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line
        self.remedy = remedy or "Write class declarations as DSP0004 has them."


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int

    @property
    def word(self) -> str:
        """The possible keyword in lower case; empty if it is no word."""
        return self.text.lower() if self.kind == "word" else ""


def parse_mof(text: str) -> tuple[ClassDeclaration, ...]:
    """Return the classes that a MOF text declares, in order.

    Raises:
        MOFError: the problem, with its line.
    """
    if len(text) > MOST_TEXT:
        raise MOFError(f"the text has more than {MOST_TEXT:,} characters", line=1)
    return _Parser(text).classes()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = self._read()

    # --- tokens

    def _split(self) -> Iterator[_Token]:
        position = 0
        while position < len(self._text):
            found = _TOKEN.match(self._text, position)
            if found is None:
                raise self._error(self._unread(position), position)
            if found.lastgroup != "space":
                yield _Token(str(found.lastgroup), found[0], position)
            position = found.end()

    def _unread(self, position: int) -> str:
        if self._text.startswith("/*", position):
            return "a comment is not closed"
        shown = self._text[position]
        return "a text is not closed" if shown == '"' else f"{shown!r} is not expected here"

    def _read(self) -> _Token:
        return next(self._tokens, _Token("end", "", len(self._text)))

    def _take(self) -> _Token:
        token, self._next = self._next, self._read()
        return token

    def _accept(self, sign: str) -> bool:
        if self._next.kind == "sign" and self._next.text == sign:
            self._take()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._unexpected(f"{sign} is missing")

    def _name(self, what: str) -> str:
        if self._next.kind != "word":
            raise self._unexpected(f"the name of {what} is missing")
        token = self._take()
        if len(token.text) > MOST_CHARACTERS:
            message = f"the name of {what} has more than {MOST_CHARACTERS} characters"
            raise self._error(message, token.offset)
        return token.text

    def _error(self, message: str, offset: int, remedy: str = "") -> MOFError:
        return MOFError(message, line=self._text.count("\n", 0, offset) + 1, remedy=remedy)

    def _unexpected(self, message: str) -> MOFError:
        found = "the end" if self._next.kind == "end" else repr(self._next.text[:40])
        return self._error(f"{message} before {found}", self._next.offset)

    # --- declarations

    def classes(self) -> tuple[ClassDeclaration, ...]:
        declared: list[ClassDeclaration] = []
        while self._next.kind != "end":
            if self._next.kind == "pragma":
                self._pragma()
                continue
            qualifiers = self._qualifiers()
            if self._next.word == "class":
                if len(declared) >= MOST_CLASSES:
                    message = f"there are more than {MOST_CLASSES:,} classes"
                    raise self._error(message, self._next.offset, "Leave out what is not needed.")
                declared.append(self._class(qualifiers))
            elif self._next.word == "qualifier" and not qualifiers:
                self._skip_to(";")
            else:
                raise self._no_class()
        return tuple(declared)

    def _no_class(self) -> MOFError:
        word = self._next.word
        if word in ("instance", "structure", "enumeration"):
            message = f"{word} declarations are not read, only classes"
            return self._error(message, self._next.offset, "Remove it from the text.")
        return self._unexpected("a class declaration is missing")

    def _pragma(self) -> None:
        offset = self._take().offset
        if self._name("a pragma").lower() == "include":
            remedy = "Put what it includes into the text, or into a file beside this one."
            raise self._error("#pragma include is not followed", offset, remedy)
        self._expect("(")
        self._skip_nested(")")

    def _class(self, qualifiers: dict[str, str]) -> ClassDeclaration:
        self._take()
        name = self._name("a class")
        if self._next.word == "as":
            # An alias is for instances, which are not read.
            self._take()
            self._expect("$")
            self._name("an alias")
        superclass = self._name("a superclass") if self._accept(":") else None
        self._expect("{")
        properties: dict[str, PropertyDeclaration] = {}
        while not self._accept("}"):
            found = self._feature()
            if found is None:
                continue
            if found.name.casefold() in properties:
                raise self._unexpected(f"{name} declares {found.name} twice")
            properties[found.name.casefold()] = found
            if len(properties) > MOST_PROPERTIES:
                raise self._unexpected(f"{name} has more than {MOST_PROPERTIES:,} properties")
        self._expect(";")
        return ClassDeclaration(
            name, superclass, tuple(properties.values()), abstract="abstract" in qualifiers
        )

    def _feature(self) -> PropertyDeclaration | None:
        """None for a method."""
        qualifiers = self._qualifiers()
        offset = self._next.offset
        type_name = self._name("a type")
        reference = self._next.word == "ref"
        if reference:
            self._take()
        elif type_name.lower() not in _TYPES:
            remedy = f"Use one of {', '.join(sorted(_TYPES))}, or CLASS REF."
            raise self._error(f"{type_name[:40]} is not a CIM type", offset, remedy)
        name = self._name("a property")
        if self._accept("("):
            self._skip_nested(")")
            self._expect(";")
            return None
        is_array = self._accept("[")
        if is_array:
            self._skip_nested("]")
        if self._accept("="):
            self._skip_to(";")
        else:
            self._expect(";")
        return PropertyDeclaration(
            name,
            _property_type(type_name, qualifiers, reference=reference, is_array=is_array),
            required=qualifiers.get("required", "false").lower() == "true",
        )

    def _qualifiers(self) -> dict[str, str]:
        """By name in lower case, with the values of those that are kept; default: ``true``."""
        found: dict[str, str] = {}
        if not self._accept("["):
            return found
        while True:
            name, value = self._name("a qualifier").lower(), "true"
            if self._accept("("):
                value = self._next.text
                self._skip_nested(")")
            elif self._accept("{"):
                self._skip_nested("}")
            if self._accept(":"):
                while self._next.kind == "word":
                    self._take()
            if value.lower() != "false":
                found[name] = value
            if not self._accept(","):
                self._expect("]")
                return found

    # --- what is skipped

    def _skip_to(self, sign: str) -> None:
        """Skip through ``sign``, with nested brackets."""
        while not self._accept(sign):
            token = self._take()
            if token.kind == "end" or token.kind == "pragma":
                raise self._error(f"{sign} is missing", token.offset)
            if token.kind == "sign" and token.text in _CLOSING:
                self._skip_nested(_CLOSING[token.text])

    def _skip_nested(self, sign: str) -> None:
        """Skip through the bracket that closes the one before, at any depth."""
        waiting = [sign]
        while waiting:
            token = self._take()
            if token.kind == "end":
                raise self._error(f"{waiting[-1]} is missing", token.offset)
            if token.kind != "sign":
                continue
            if token.text in _CLOSING:
                waiting.append(_CLOSING[token.text])
            elif token.text in _CLOSING.values() and token.text != waiting.pop():
                raise self._error(f"{token.text} closes nothing", token.offset)


def _property_type(
    type_name: str, qualifiers: dict[str, str], *, reference: bool, is_array: bool
) -> str:
    if reference:
        return CIMType.REFERENCE.value
    base = type_name.lower()
    if base == CIMType.STRING and "embeddedinstance" in qualifiers:
        base = EmbeddedObject.INSTANCE.value
    elif base == CIMType.STRING and "embeddedobject" in qualifiers:
        base = EmbeddedObject.OBJECT.value
    return f"{base}[]" if is_array else base
