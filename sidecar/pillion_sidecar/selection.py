"""Which properties a delivery carries: those that its filter's query lists after SELECT (D.3)."""

from collections.abc import Iterable

import msgspec

from pillion_sidecar.indication import Selection

#: Carried with any list, if the publisher gave them: listeners recognize an indication by them.
ALWAYS_CARRIED = ("CorrelatedIndications", "IndicationIdentifier", "IndicationTime")

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def selection_of(listed: Iterable[str]) -> Selection:
    return frozenset(name.casefold() for name in (*listed, *ALWAYS_CARRIED))


def selected_body(body: bytes, selection: Selection) -> bytes:
    """Return an instance in its JSON form without the properties that are not selected. Raises
    ValueError if the body is not the JSON form of an instance."""
    try:
        instance = _decode(body)
        given = _decode(instance["properties"])
    except (msgspec.MsgspecError, KeyError) as error:
        raise ValueError(f"the body is no instance: {error}") from error
    kept = {name: value for name, value in given.items() if name.casefold() in selection}
    return msgspec.json.encode({**instance, "properties": kept})
