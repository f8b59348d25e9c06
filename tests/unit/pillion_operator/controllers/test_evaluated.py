"""The status of a service is that of the spec that was evaluated."""

from typing import Any, cast

import pytest

from pillion_operator.controllers.service_status import ServiceStatusReconciler
from pillion_operator.controllers.states import status_of
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.store import key_of
from support.operator_context import context_of


def service(generation: int) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "default", "uid": "u", "generation": generation}
    version = {"resourceVersion": str(generation)}
    return {"kind": "IndicationService", "metadata": {**metadata, **version}, "spec": {}}


class Asked(Exception):
    """The reconcile goes on to what there is to say."""


class Evaluation:
    """One that says when it is asked."""

    @property
    def verdict(self) -> Verdict:
        raise Asked


async def test_nothing_is_stated_of_a_spec_that_is_not_evaluated_yet() -> None:
    context = context_of()
    reconciler = ServiceStatusReconciler(context)
    evaluation = cast(ServiceEvaluation, Evaluation())
    key = status_of(key_of(service(2)))
    context.states.put(service(1), evaluation)
    context.store.put(service(2))

    await reconciler.reconcile(key)

    context.states.put(service(2), evaluation)
    with pytest.raises(Asked):
        await reconciler.reconcile(key)
