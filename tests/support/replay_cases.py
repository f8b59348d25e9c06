"""The cases of the rules of IndicationReplay; see ``support.resource_cases``."""

from support.resource_rules import Case
from support.resources import JSON

_REPLAY: JSON = {"destinationRef": {"name": "d"}, "from": "2026-11-22T12:00:00Z"}


def _replay(path: str, says: str, refused: JSON, mended: JSON, before: JSON | None = None) -> Case:
    return Case(
        kind="IndicationReplay",
        field=f"spec.{path}",
        says=says,
        refused={**_REPLAY, **refused},
        mended={**_REPLAY, **mended},
        before=None if before is None else {**_REPLAY, **before},
    )


def _named(field: str, says: str, wrong: str, right: str) -> Case:
    return _replay(f"{field}.name", says, {field: {"name": wrong}}, {field: {"name": right}})


_OTHERS: tuple[tuple[str, JSON, JSON], ...] = (
    ("serviceRef", {"serviceRef": {"name": "other"}}, {}),
    ("destinationRef", {"destinationRef": {"name": "other"}}, {}),
    ("from", {"from": "2026-11-22T13:00:00Z"}, {}),
    ("results", {"results": ["Discarded"]}, {}),
    ("until", {"until": "2026-11-23T00:00:00Z"}, {}),
    ("destinations", {"destinations": ["a"]}, {}),
    ("filterRef", {"filterRef": {"name": "b"}}, {"filterRef": {"name": "a"}}),
)
_TIMES = (
    ("2026-11-22", "2026-11-22T00:00:00Z"),
    ("2026-11-22T00:00:00", "2026-11-22T00:00:00+01:00"),
    ("2026-11-22T24:00:00Z", "2026-11-23T00:00:00.5Z"),
    ("2026-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
    ("2100-02-29T00:00:00Z", "2400-02-29T00:00:00Z"),
    ("2026-04-31T00:00:00Z", "2026-03-31T00:00:00Z"),
    ("1970-01-01T00:00:00Z", "2000-01-01T00:00:00Z"),
)
REPLAY_CASES = (
    _named("serviceRef", "is not the name", "Default", "default"),
    _named("serviceRef", "holds a dot", "a.b", "a-b"),
    _named("serviceRef", "ends in -headless", "a-headless", "a-headless-1"),
    _named("destinationRef", "is not the name", "d/d", "d"),
    _named("filterRef", "is not the name", "f.", "f"),
    _replay(
        "destinations[1]",
        "is not the name",
        {"destinations": ["a", "B"]},
        {"destinations": ["a", "b"]},
    ),
    _replay("results", "is empty", {"results": []}, {"results": ["Delivered"]}),
    *(
        _replay(field, "is not a time", {field: wrong}, {field: right})
        for field in ("from", "until")
        for wrong, right in _TIMES
    ),
    *(
        _replay(
            field, "cannot be changed", {**before, **changed}, {**before, "suspended": True}, before
        )
        for field, changed, before in _OTHERS
    ),
)
