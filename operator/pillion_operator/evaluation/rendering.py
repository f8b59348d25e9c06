"""How objects differ in a rendered configuration from what users wrote."""

from collections.abc import Collection

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.references import HAND_OVER_TO, SERVICE
from pillion_sidecar.config.schema import API_VERSION, LISTENER_DESTINATION
from pillion_sidecar.config.schema.common import secret_fields
from pillion_sidecar.config.schema.destination import SequenceIdentifiers, withheld_url

FROM_SECRETS = secret_fields(LISTENER_DESTINATION.spec)


def suspended(destination: Object) -> Object:
    """Suspend a destination that lacks a Secret or a gateway: its queue is kept."""
    without = {*FROM_SECRETS, "deliverThrough"}
    return _with(destination, without=without, suspended=True, **_withheld(destination))


def relayed(destination: Object) -> Object:
    """A destination that sidecars relay to a gateway, without its credentials."""
    return _with(destination, without=FROM_SECRETS, **_withheld(destination))


def without_identifiers(destination: Object) -> Object:
    """A destination with several deliverers: each counts by itself, so under ``Auto`` none sends
    sequence identifiers."""
    return _with(destination, sequenceIdentifiers=SequenceIdentifiers.OMIT.value)


def guest(service: str, *, namespace: str, gateway: str) -> Object:
    """Return a service as its gateway needs it, to accept what its deliverers relay or hand over.
    Without other fields, so that a change, deletion or refusal of the service affects nothing
    there."""
    return {
        "apiVersion": API_VERSION,
        "kind": SERVICE,
        "metadata": {"name": service, "namespace": namespace},
        "spec": {HAND_OVER_TO: {"name": gateway}},
    }


def _withheld(destination: Object) -> dict[str, object]:
    spec = destination["spec"]
    if "destinationFrom" not in spec:
        return {}
    return {"destination": withheld_url(str(spec["protocol"]))}


def _with(body: Object, *, without: Collection[str] = (), **more: object) -> Object:
    spec = {name: value for name, value in body["spec"].items() if name not in without}
    return {**body, "spec": {**spec, **more}}
