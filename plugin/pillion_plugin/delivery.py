"""What a plug-in is given, and what it answers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Seconds; more than any time-out of a destination.
LONGEST_TIMEOUT = 86_400.0


class Refused(Exception):
    """The indication can never be delivered: it is discarded at once."""


class Retry(Exception):
    """The attempt failed. ``after``: the next one makes sense after so many seconds.
    ``indication_only``: the fault is this indication's, and the next one may succeed."""

    def __init__(
        self, detail: str, *, after: float | None = None, indication_only: bool = False
    ) -> None:
        if after is not None and not (math.isfinite(after) and after >= 0):
            raise ValueError(f"after: {after!r} is not a number of seconds; use 0 or more")
        super().__init__(detail)
        self.after = after
        self.indication_only = indication_only


class ParameterError(Exception):
    """Names the parameter and what it must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The destination that a link serves, as ``initialize`` named it."""

    destination: str
    url: str
    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One attempt to deliver an indication."""

    #: CIM class of the indication, such as ``CIM_AlertIndication``.
    class_name: str
    properties: Mapping[str, Any]
    #: Seconds. After them the deliverer is told that the attempt timed out.
    timeout: float
    #: From 1.
    attempt: int
    filter_name: str
    #: IndicationIdentifier.
    identifier: str | None
    #: None where the destination is sent no sequence identifiers.
    sequence_context: str | None
    sequence_number: int | None
    #: Name and URL (``plugin://NAME/path?query``) of the destination, and the IndicationService.
    destination: str
    url: str
    service: str
    #: All parameters as they came, in the form of JSON.
    params: Mapping[str, Any]


def peer_from(params: Mapping[str, Any]) -> Peer:
    """Raises ParameterError."""
    return Peer(
        destination=_text(params, "destination") or "",
        url=_text(params, "url") or "",
        service=_text(params, "service") or "",
    )


def delivery_from(params: Mapping[str, Any], peer: Peer) -> Delivery:
    """Raises ParameterError."""
    indication = params.get("indication")
    if not isinstance(indication, dict):
        raise ParameterError("indication: an object with class and properties is missing")
    class_name, properties = indication.get("class"), indication.get("properties")
    if not isinstance(class_name, str) or not class_name:
        raise ParameterError("indication.class: the name of a class is missing")
    if not isinstance(properties, dict):
        raise ParameterError("indication.properties: an object is missing")
    return Delivery(
        class_name=class_name,
        properties=properties,
        timeout=_timeout(params),
        attempt=_whole_number(params, "attempt") or 1,
        filter_name=_text(params, "filterName") or "",
        identifier=_text(params, "identifier"),
        sequence_context=_text(params, "sequenceContext"),
        sequence_number=_whole_number(params, "sequenceNumber"),
        destination=peer.destination,
        url=peer.url,
        service=peer.service,
        params=params,
    )


def _timeout(params: Mapping[str, Any]) -> float:
    match params.get("timeout"):
        case bool():
            pass
        case int() | float() as seconds if 0 < seconds <= LONGEST_TIMEOUT:
            return float(seconds)
    raise ParameterError(f"timeout: not a number of seconds above 0, at most {LONGEST_TIMEOUT:g}")


def _text(params: Mapping[str, Any], name: str) -> str | None:
    value = params.get(name)
    if value is None or isinstance(value, str):
        return value
    raise ParameterError(f"{name}: not a string")


def _whole_number(params: Mapping[str, Any], name: str) -> int | None:
    value = params.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ParameterError(f"{name}: not a whole number")
