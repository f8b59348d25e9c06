"""What is said of others who decide about the objects of a service. Pure."""

from pillion_operator.status.conditions import Condition


def another_installation(one: str, other: str) -> Condition:
    """AnotherInstallation: both installations of the operator say the same, in the same words."""
    both = " and ".join(sorted((one, other)))
    return Condition(
        "AnotherInstallation",
        "True",
        "ObjectsOverwritten",
        f"The installations {both} (namespace and Lease of each) both make the objects of this "
        "service, and overwrite each other. Remove one, or let them serve different namespaces "
        "(--namespace; scope.namespaces of the chart).",
    )


def scaled_elsewhere(stateful_set: str, manager: str, replicas: int) -> Condition:
    """ReplicasScaledElsewhere: an autoscaler sets the number of a gateway's pods."""
    return Condition(
        "ReplicasScaledElsewhere",
        "True",
        "Scaled",
        f"{manager} has set replicas of StatefulSet {stateful_set} to {replicas} through its "
        "scale, and deliverer.replicas is not applied. Each pod has queues of its own; those of a "
        "pod that goes wait in its claim, and are lost without one. To have deliverer.replicas "
        f"again, remove the autoscaler, then run kubectl scale statefulset {stateful_set} "
        "--replicas with that number.",
    )
