"""Walking through a document as its DTD says it is built, refusing what is built otherwise."""

from collections.abc import Sequence

from pillion_cim.cimxml.parser import Element


class StructureError(ValueError):
    """The document is well-formed XML, but not what DSP0203 or DSP0201 says it must be."""


def children(element: Element) -> list[Element]:
    """Return an element's children. Raises StructureError if there is text among them."""
    found = list(element)
    # Most elements hold no text at all, not even white space; a call for each would show.
    if element.text is not None:
        _refuse_text(element, element.text)
    for child in found:
        tail = child.tail
        if tail is not None:
            _refuse_text(element, tail)
    return found


def only_child(element: Element, tag: str, *, among: Sequence[Element] | None = None) -> Element:
    """Return the one child, which must have this tag. Raises StructureError."""
    found = children(element) if among is None else among
    if len(found) != 1 or found[0].tag != tag:
        tags = ", ".join(str(child.tag)[:40] for child in found[:3]) or "nothing"
        raise StructureError(f"{element.tag} must hold one {tag}, not {tags}")
    return found[0]


def attribute(element: Element, name: str) -> str:
    """Return an attribute that must be there. Raises StructureError."""
    value = element.get(name)
    if value is None:
        raise StructureError(f"{str(element.tag)[:80]} lacks the attribute {name}")
    return value


def text_of(element: Element) -> str:
    """Return the text of an element that may hold nothing else. Raises StructureError."""
    if len(element):
        raise StructureError(f"{element.tag} may only hold text")
    return element.text or ""


def _refuse_text(element: Element, text: str) -> None:
    if text.strip(" \t\r\n"):
        raise StructureError(f"{str(element.tag)[:80]} may not hold text")
