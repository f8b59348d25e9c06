"""JSON as intake takes it from strangers: strict, bounded in depth, every member
once.

Python's own parser, told to refuse what it would let pass: duplicate members, NaN and Infinity,
text that is not UTF-8.
"""

import json
from typing import Any

from pillion_sidecar.intake.decoding import InvalidLine


def parse_json(text: bytes) -> Any:
    """Return the value. Raises :class:`InvalidLine` that says what is wrong and where."""
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidLine(f"not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        return _DECODER.decode(decoded)
    except json.JSONDecodeError as error:
        remedy = (
            "send several lines as application/x-ndjson"
            if error.msg == "Extra data"
            else 'write one JSON object a line: {"class": NAME, "properties": {…}}'
        )
        raise InvalidLine(f"not JSON: {error.msg} at character {error.pos}; {remedy}") from None
    except RecursionError:
        raise InvalidLine("nested too deep") from None
    except ValueError as error:
        # An integer of thousands of digits, which Python declines to convert.
        raise InvalidLine(f"not JSON that can be taken: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidLine(f"{name[:80]!r} is given twice in one object", field=name[:80])
            seen.add(name)
    return found


def _no_such_number(literal: str) -> float:
    raise InvalidLine(f"{literal} is not JSON; for a real, write the text {literal[:4]!r}")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_such_number)
