"""Label selectors: matching, comparing, and rendering as a query. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from pillion_operator.cluster.types import Object

#: A label's key, an operator and its values.
_Requirement = tuple[str, str, frozenset[str]]


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects ``labels``. An absent or empty selector, or one with an
    unknown operator, selects nothing, unlike in Kubernetes: a forgotten line must not inject every
    pod."""
    requirements = _requirements(selector)
    return bool(requirements) and all(_holds(one, labels) for one in requirements)


def _holds(requirement: _Requirement, labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False


def rendered(selector: Object | None) -> str | None:
    """A ``labelSelector`` query; None if the selector selects nothing."""
    parts = [_rendered(one) for one in _requirements(selector)]
    return None if None in parts else ",".join(filter(None, parts)) or None


def _rendered(requirement: _Requirement) -> str | None:
    key, operator, values = requirement
    listed = ",".join(sorted(values))
    return {
        "In": f"{key}={listed}" if len(values) == 1 else f"{key} in ({listed})",
        "NotIn": f"{key} notin ({listed})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }.get(operator)


def covers(wide: Object, narrow: Object) -> bool:
    """Whether ``wide`` selects every pod that ``narrow`` selects, and ``narrow`` can select any."""
    wanted = _requirements(wide)
    known: dict[str, list[_Requirement]] = {}
    for requirement in _requirements(narrow):
        known.setdefault(requirement[0], []).append(requirement)
    if any(_allowed(requirements) == frozenset() for requirements in known.values()):
        return False
    # A selector without requirements selects nothing.
    return bool(wanted and known) and all(_implied(one, known.get(one[0], ())) for one in wanted)


def _requirements(selector: Object | None) -> list[_Requirement]:
    selector = selector or {}
    labels = (selector.get("matchLabels") or {}).items()
    return [
        *((key, "In", frozenset({value})) for key, value in labels),
        *(
            (one["key"], one["operator"], frozenset(one.get("values") or ()))
            for one in selector.get("matchExpressions") or ()
        ),
    ]


def _allowed(requirements: Iterable[_Requirement]) -> frozenset[str] | None:
    """The possible values of a label; None: any."""
    sets = [values for _, operator, values in requirements if operator == "In"]
    return frozenset.intersection(*sets) if sets else None


def _implied(requirement: _Requirement, known: Sequence[_Requirement]) -> bool:
    _, operator, values = requirement
    allowed, operators = _allowed(known), {one[1] for one in known}
    match operator:
        case "In":
            return allowed is not None and allowed <= values
        case "NotIn":
            if allowed is not None:
                return not allowed & values
            excluded = [one[2] for one in known if one[1] == "NotIn"]
            return "DoesNotExist" in operators or any(values <= one for one in excluded)
        case "Exists":
            return allowed is not None or "Exists" in operators
        case _:
            return "DoesNotExist" in operators
