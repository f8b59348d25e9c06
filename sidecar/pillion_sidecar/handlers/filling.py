"""What the placeholders of a template stand for; see :mod:`pillion_sidecar.templates`."""

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.handlers.content import (
    Content,
    identifier_of,
    occurred,
    point_in_time,
    rfc3339,
    split,
)
from pillion_sidecar.handlers.dead_letters import named_values
from pillion_sidecar.handlers.standard_webhooks import header_identifier
from pillion_sidecar.indication import Indication, Selection

#: Seconds from an attempt to ``${ends}``.
ALERT_SECONDS = 3600
#: By PerceivedSeverity: 3 is Degraded/Warning, 4 Minor, 5 Major, 6 Critical, 7 Fatal.
SEVERITIES = {
    0: "warning",
    1: "warning",
    2: "info",
    3: "warning",
    4: "warning",
    5: "error",
    6: "critical",
    7: "critical",
}
_FORM = "Filling"
#: What a dead letter says of its discard.
#: PerceivedSeverity of what is over.
_INFORMATION = 2
_DISCARD = ("attempts", "destination", "detail", "reason")


@dataclass(slots=True, kw_only=True, eq=False)
class Values:
    """What an indication's templates are filled with."""

    content: Content
    #: As published, without what a delivery sets.
    properties: dict[str, Any]
    #: By lower-case name, each without its stated type.
    by_name: dict[str, Any]


#: Gives a word's value for a delivery.
_Word: TypeAlias = Callable[[Values, Delivery], object]


class Filling:
    """Values of the words that a template of one destination has."""

    def __init__(
        self,
        names: Container[str],
        *,
        service_name: str,
        clock: Clock,
        api_key: str | None = None,
    ) -> None:
        known = _words(service_name=service_name, api_key=api_key, clock=clock)
        self._words = {name: word for name, word in known.items() if name in names}

    def of(self, values: Values, delivery: Delivery) -> tuple[dict[str, object], dict[str, object]]:
        """Return the words, and all properties by lower-case name."""
        set_here = {name.lower(): value for name, value in _set_here(delivery).items()}
        words = {name: word(values, delivery) for name, word in self._words.items()}
        return words, {**values.by_name, **set_here}


def _words(*, service_name: str, api_key: str | None, clock: Clock) -> dict[str, _Word]:
    """What fills each word; a template uses few of them."""

    def correlation(values: Values, delivery: Delivery) -> object:
        correlated = values.content.correlated or [None]
        return header_identifier(str(correlated[0] or identifier_of(values.content, delivery)))

    def time(values: Values, delivery: Delivery) -> str:
        return occurred(values.content, delivery.indication, clock)

    return {
        "action": lambda values, _delivery: "resolve" if _is_over(values) else "trigger",
        "apiKey": lambda _values, _delivery: api_key,
        "class": lambda _values, delivery: delivery.indication.class_name,
        "correlation": correlation,
        **{f"discard{name.capitalize()}": partial(_discard, name) for name in _DISCARD},
        "ends": lambda values, delivery: _later(
            rfc3339(clock.time() + ALERT_SECONDS), time(values, delivery)
        ),
        "filterName": lambda _values, delivery: delivery.filter_name,
        "identifier": lambda values, delivery: identifier_of(values.content, delivery),
        "properties": lambda values, delivery: {**values.properties, **_set_here(delivery)},
        "sequenceContext": lambda _values, delivery: delivery.sequence_context,
        "sequenceNumber": lambda _values, delivery: delivery.sequence_number,
        "service": lambda _values, _delivery: service_name,
        "severity": lambda values, _delivery: _severity(values.by_name.get("perceivedseverity")),
        "source": lambda _values, delivery: delivery.indication.source or service_name,
        "time": time,
    }


def _is_over(values: Values) -> bool:
    """Whether an indication tells that what an earlier one told is over."""
    severity = values.by_name.get("perceivedseverity")
    return severity == _INFORMATION and bool(values.content.correlated)


def _discard(name: str, _values: Values, delivery: Delivery) -> object:
    """Why the delivery is a dead letter; None for any other."""
    dead_letter = delivery.indication.dead_letter
    return None if dead_letter is None else dict(named_values(dead_letter)).get(name)


def _set_here(delivery: Delivery) -> dict[str, object]:
    """The properties that a delivery sets."""
    found: dict[str, object] = {"IndicationFilterName": delivery.filter_name}
    if delivery.sequence_context is not None and delivery.sequence_number is not None:
        found["SequenceContext"] = delivery.sequence_context
        found["SequenceNumber"] = delivery.sequence_number
    return found


def values_of(indication: Indication, selection: Selection | None) -> Values:
    """Kept. Raises as :func:`pillion_sidecar.handlers.content.read_content` does."""
    return indication.form(_FORM, selection, partial(_values, indication))


def _values(indication: Indication, body: bytes) -> Values:
    properties, correlated = split(_decoded(body))
    content = Content(
        # The properties are filled in by themselves.
        body=b"",
        identifier=indication.identifier,
        correlated=correlated,
        time=point_in_time(properties.get("IndicationTime")),
    )
    by_name = {name.lower(): without_type(value) for name, value in properties.items()}
    return Values(content=content, properties=properties, by_name=by_name)


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        # It refuses numbers that are no double.
        document = json.loads(body)
        # Halves of surrogate pairs cannot be sent.
        msgspec.json.encode(document)
        return document


def without_type(value: Any) -> Any:
    """The value of a property with a stated type."""
    is_stated = isinstance(value, Mapping) and value.keys() >= {"type", "value"}
    return value["value"] if is_stated else value


def _later(ends: str, begins: str) -> str:
    """The later one of two times in UTC; the second one may have fractions of a second."""
    return begins if begins[: len(ends) - 1] >= ends[:-1] else ends


def _severity(value: object) -> str:
    return SEVERITIES.get(value, "info") if isinstance(value, int) else "info"
