"""How a dead letter says why it is one: extension attributes of CloudEvents, and HTTP headers of
the same names."""

from collections.abc import Iterator
from urllib.parse import quote

import msgspec

from pillion_sidecar.config.problems import one_line
from pillion_sidecar.indication import DeadLetter

#: Before the names of all: CloudEvents has lower-case letters and digits.
PREFIX = "pilliondiscard"
#: Maximum characters of each text.
LONGEST = 253
#: What a header may hold unescaped.
_SAFE = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_encode = msgspec.json.encode


def named_values(dead_letter: DeadLetter) -> Iterator[tuple[str, str | int]]:
    """Yield names without their prefix, and values."""
    yield "reason", one_line(dead_letter.reason, LONGEST)
    yield "destination", one_line(dead_letter.destination, LONGEST)
    if dead_letter.detail:
        yield "detail", one_line(dead_letter.detail, LONGEST)
    yield "attempts", dead_letter.attempts


def event_attributes(dead_letter: DeadLetter) -> bytes:
    """Members of a CloudEvent in JSON, each with a comma before it."""
    return b"".join(
        b',"%b%b":%b' % (PREFIX.encode(), name.encode(), _encode(value))
        for name, value in named_values(dead_letter)
    )


def header_lines(dead_letter: DeadLetter | None) -> bytes:
    """Header lines in ASCII, other characters percent-encoded; none for what is no dead letter."""
    if dead_letter is None:
        return b""
    return "".join(
        f"{PREFIX}{name}: {quote(str(value), safe=_SAFE, errors='replace')}\r\n"
        for name, value in named_values(dead_letter)
    ).encode("ascii")
