"""The cases of the rules of responsePolicy; see ``support.resource_cases``."""

from support.resource_rules import Case
from support.resources import JSON

_KINDS: tuple[tuple[str, JSON], ...] = (
    ("IndicationService", {}),
    ("ListenerDestination", {"destination": "https://host/", "protocol": "CloudEvents"}),
)
_REFUSED: tuple[tuple[str, str, JSON, JSON], ...] = (
    (
        ".answers",
        "is empty",
        {"answers": [], "action": "Retry"},
        {"answers": ["410"], "action": "Retry"},
    ),
    *(
        (
            ".answers[1]",
            "is not an answer",
            {"answers": ["410", wrong], "action": "Disable"},
            {"answers": ["410", right], "action": "Disable"},
        )
        for wrong, right in (
            ("600", "599"),
            ("1xx", "2xx"),
            ("5XX", "5xx"),
            ("401-403", "401"),
            ("time-out", "timeout"),
        )
    ),
    (
        ".attempts",
        "has no effect, since action is not Discard",
        {"answers": ["422"], "action": "Retry", "attempts": 2},
        {"answers": ["422"], "action": "Discard", "attempts": 2},
    ),
)
RESPONSE_POLICY_CASES = tuple(
    Case(
        kind=kind,
        field=f"spec.responsePolicy[0]{field}",
        says=says,
        refused={**spec, "responsePolicy": [refused]},
        mended={**spec, "responsePolicy": [mended]},
    )
    for kind, spec in _KINDS
    for field, says, refused, mended in _REFUSED
)
