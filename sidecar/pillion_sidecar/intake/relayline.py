"""A line of ``POST /v1/relay``: an ordinary line, and what the sidecar says of it that accepted it
(the design's "The relay"). What a sidecar has validated is validated again: whoever has its token
could send anything."""

import math
from typing import Annotated, Any

import msgspec

from pillion_cim.schema import Schema
from pillion_cim.values import ILLEGAL_IN_XML, is_language_tag
from pillion_sidecar.intake.decoding import Decoded, InvalidLine, RelayOrigin, decode_object
from pillion_sidecar.intake.fastpath import FastPath

#: Characters of a subscription's uid, and of a context.
MAXIMUM_UID = 256
MAXIMUM_CONTEXT = 1024
#: The greatest number, and the most languages of a line.
GREATEST_NUMBER = (1 << 63) - 1
MAXIMUM_LANGUAGES = 16

_MEMBERS = ("subscription", "acceptedAt", "context", "number")


class _Origin(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    subscription: Annotated[str, msgspec.Meta(min_length=1, max_length=MAXIMUM_UID)]
    acceptedAt: Annotated[float, msgspec.Meta(ge=0)]
    context: Annotated[str, msgspec.Meta(min_length=1, max_length=MAXIMUM_CONTEXT)]
    number: Annotated[int, msgspec.Meta(ge=0, le=GREATEST_NUMBER)]


class RelayFastPath(FastPath):
    """The shorter way for the usual relayed line."""

    def __init__(self, schema: Schema) -> None:
        """Compile a decoder for the classes of ``schema``: some milliseconds."""
        super().__init__(
            schema,
            beside=(("languages", list[str] | None, None), ("relay", _Origin | None, None)),
        )

    def decode(self, line: bytes) -> Decoded | None:
        """See :meth:`FastPath.decode`."""
        parsed = self.parse(line)
        if parsed is None or parsed.relay is None:
            return None
        origin, languages = parsed.relay, parsed.languages
        if languages is not None and not _are_languages(languages):
            return None
        # ``relay`` with its four members, and ``languages``.
        further = 1 + len(_MEMBERS) + (languages is not None)
        decoded = self.decode_unusual(line, parsed, further=further)
        if decoded is None:
            return None
        return msgspec.structs.replace(
            decoded,
            languages=() if languages is None else tuple(languages),
            relay=RelayOrigin(
                origin.subscription, origin.acceptedAt, origin.context, origin.number
            ),
        )


def decode_relayed(obj: Any, *, schema: Schema) -> Decoded:
    """Decode one JSON object, the complete way. Raises :class:`InvalidLine`."""
    if not isinstance(obj, dict):
        raise InvalidLine('not an object; write {"class": …, "properties": {…}, "relay": {…}}')
    ordinary = dict(obj)
    relay, languages = ordinary.pop("relay", None), ordinary.pop("languages", [])
    origin = _origin(relay)
    if not isinstance(languages, list) or not _are_languages(languages):
        raise InvalidLine(
            f"languages: not a list of at most {MAXIMUM_LANGUAGES} language tags",
            field="languages",
        )
    return msgspec.structs.replace(
        decode_object(ordinary, schema=schema), languages=tuple(languages), relay=origin
    )


def _are_languages(languages: list[Any]) -> bool:
    return len(languages) <= MAXIMUM_LANGUAGES and all(
        isinstance(tag, str) and is_language_tag(tag) for tag in languages
    )


def _origin(given: Any) -> RelayOrigin:
    if not isinstance(given, dict):
        needed = ", ".join(_MEMBERS)
        raise InvalidLine(f"relay: give an object with {needed}", field="relay")
    for name in given:
        if name not in _MEMBERS:
            shown = f"relay.{name}"[:40]
            raise InvalidLine(
                f"{shown}: unknown; relay has {', '.join(_MEMBERS)}",
                field=shown,
            )
    return RelayOrigin(
        _text(given, "subscription", maximum=MAXIMUM_UID),
        _accepted_at(given.get("acceptedAt")),
        _text(given, "context", maximum=MAXIMUM_CONTEXT),
        _number(given.get("number")),
    )


def _text(given: dict[str, Any], name: str, *, maximum: int) -> str:
    value = given.get(name)
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= maximum
        or ILLEGAL_IN_XML.search(value) is not None
    ):
        raise InvalidLine(
            f"relay.{name}: not a text of 1 to {maximum} characters that XML can carry",
            field=f"relay.{name}",
        )
    return value


def _accepted_at(value: Any) -> float:
    try:
        seconds = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        seconds = math.inf
    if not 0 <= seconds < math.inf:
        raise InvalidLine(
            f"relay.acceptedAt: not a number of seconds since 1970: {value!r:.40}",
            field="relay.acceptedAt",
        )
    return seconds


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= GREATEST_NUMBER:
        raise InvalidLine(
            f"relay.number: not an integer from 0 to {GREATEST_NUMBER}: {value!r:.40}",
            field="relay.number",
        )
    return value
