"""Label selectors: matching, comparing, and rendering as a query. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from pillion_operator.cluster.types import Object


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects ``labels``. An absent or empty selector, or one with an
    unknown operator, selects nothing, unlike in Kubernetes: a forgotten line must not inject every
    pod."""
    if not selector:
        return False
    wanted = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return (
        bool(wanted or expressions)
        and all(labels.get(key) == value for key, value in wanted.items())
        and all(_holds(expression, labels) for expression in expressions)
    )


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False


def rendered(selector: Object | None) -> str | None:
    """A ``labelSelector`` query; None if the selector selects nothing."""
    if not selector:
        return None
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        part = _rendered(expression)
        if part is None:
            return None
        parts.append(part)
    return ",".join(parts) or None


def _rendered(expression: Object) -> str | None:
    key, values = expression["key"], ",".join(expression.get("values") or ())
    return {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": f"{key}",
        "DoesNotExist": f"!{key}",
    }.get(expression["operator"])


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


_Requirement = tuple[str, str, frozenset[str]]


def _requirements(selector: Object) -> list[_Requirement]:
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
