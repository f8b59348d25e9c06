"""A Context of the parts that a test needs."""

from dataclasses import fields
from typing import Any

from pillion_operator.controllers.context import Context
from pillion_operator.controllers.states import ServiceStates
from pillion_operator.evaluation.namespace import Parsing
from pillion_operator.evaluation.references import References
from pillion_operator.store import Store
from support.operator_time import FakeClock


def context_of(**parts: Any) -> Context:
    """A context with these parts; those that are not given are empty or None."""
    missing: dict[str, Any] = dict.fromkeys(field.name for field in fields(Context))
    made = {
        "clock": FakeClock(),
        "store": Store(),
        "references": References(),
        "parsing": Parsing(),
        "states": ServiceStates(),
        "sessions": {},
    }
    return Context(**{**missing, **made, **parts})


class Keys(list[tuple[Any, float]]):
    """Stands for the work queue: what was added, with its delay."""

    def add(self, key: Any, *, delay: float = 0.0) -> None:
        self.append((key, delay))
