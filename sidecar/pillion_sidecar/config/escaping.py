"""Text of others in a line for people or for a log: nothing in it moves a cursor, begins a line or
turns the direction of writing. Pure."""

import re

#: What may be no printable character; the rest is ASCII that is.
_SUSPECT = re.compile(r"[^ -~]")
_LAST_OF_PLANE = 0xFFFF


def escape_controls(text: str) -> str:
    """Return ``text`` with each character that is not printable written as JSON writes it:
    ``\\u202e``.

    These are the control characters C0, DEL and C1, the line ends NEL, LS and PS, the marks of
    writing direction and all other format characters, surrogates, and what Unicode has not
    assigned.
    """
    return text if text.isprintable() else _SUSPECT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code <= _LAST_OF_PLANE:
        return f"\\u{code:04x}"
    pair = letter.encode("utf-16-be").hex()
    return f"\\u{pair[:4]}\\u{pair[4:]}"
