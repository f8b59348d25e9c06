"""The status of a service is that of the spec that was evaluated."""

from typing import Any, cast

import pytest

from pillion_operator.controllers.service_status import ServiceStatusReconciler
from pillion_operator.controllers.states import ServiceStates
from pillion_operator.controllers.triggers import status_of
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.store import Store, key_of


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
    store, states = Store(), ServiceStates()
    unused = cast(Any, None)
    reconciler = ServiceStatusReconciler(
        store=store,
        states=states,
        readiness=unused,
        missed=unused,
        overlaps=unused,
        poker=unused,
        statuses=unused,
        clock=unused,
        come_again=unused,
        installation="here",
    )
    evaluation = cast(ServiceEvaluation, Evaluation())
    key = status_of(key_of(service(2)))
    states.put(service(1), evaluation)
    store.put(service(2))

    await reconciler.reconcile(key)

    states.put(service(2), evaluation)
    with pytest.raises(Asked):
        await reconciler.reconcile(key)
