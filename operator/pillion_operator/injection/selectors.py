"""Label selectors: whether they select a pod's labels, and how the API server is asked by them."""

from collections.abc import Mapping

from pillion_operator.cluster.types import Object


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects ``labels``.

    An absent or empty one selects nothing: the schema refuses it, and to give every pod a sidecar
    takes more than forgetting a line. So does one with an operator that is not known.
    """
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
    """The selector as the text of a ``labelSelector`` query; None where it selects nothing."""
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
