"""Escaping text for XML 1.0, so that a receiver reads back exactly what was meant.

A bare CR would arrive as LF, and in an attribute every white space as a space; both are escaped.
What XML cannot carry at all is refused, never dropped.
"""

import re
from typing import Final

_SPECIAL: Final = re.compile('[&<>"\r\t\n\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_REPLACEMENTS: Final = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "\r": "&#13;",
    "\t": "&#9;",
    "\n": "&#10;",
}


def escape(text: str) -> str:
    """Escape text for an element or for an attribute in double quotes.

    Raises ValueError for a character that XML 1.0 cannot carry.
    """
    if text.isprintable() and not (
        # Much cheaper than the pattern for what text nearly always is.
        "&" in text or "<" in text or ">" in text or '"' in text
    ):
        return text
    return _SPECIAL.sub(_replace, text)


def escape_markup(markup: str) -> str:
    """Escape what is itself XML, made with :func:`escape`, to stand as text inside an element."""
    return markup.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escape_lossy(text: str) -> str:
    """Escape text that is meant for people; what XML cannot carry becomes U+FFFD."""
    return _SPECIAL.sub(lambda found: _REPLACEMENTS.get(found.group(), "\ufffd"), text)


def _replace(found: re.Match[str]) -> str:
    character = found.group()
    replacement = _REPLACEMENTS.get(character)
    if replacement is None:
        code = f"U+{ord(character):04X}"
        raise ValueError(f"the character {code} at {found.start()} cannot be sent in XML")
    return replacement
