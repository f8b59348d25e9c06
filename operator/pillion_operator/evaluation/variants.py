"""Objects that are rendered otherwise than their users wrote them. Pure."""

from collections.abc import Collection

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.references import HAND_OVER_TO, SERVICE
from pillion_sidecar.config.resources import WITHHELD_URL, SequenceIdentifiers
from pillion_sidecar.config.schema import API_VERSION, LISTENER_DESTINATION
from pillion_sidecar.config.schema.rules import secret_fields

#: The fields of a destination that take anything from Secrets.
FROM_SECRETS = secret_fields(LISTENER_DESTINATION.spec)


def suspended(destination: Object) -> Object:
    """A destination that cannot be delivered to for now, for want of a Secret or of a gateway:
    nothing is sent, and nothing is discarded."""
    withheld = _withheld(destination)
    without = {*FROM_SECRETS, "deliverThrough"}
    return _with(destination, without=without, suspended=True, **withheld)


def relayed(destination: Object) -> Object:
    """A destination that sidecars leave to a gateway: how to get into the listener is no business
    of theirs."""
    return _with(destination, without=FROM_SECRETS, **_withheld(destination))


def without_identifiers(destination: Object) -> Object:
    """A destination whose listener has more than one deliverer: under ``Auto``, none of them sends
    sequence identifiers, since each has numbers of its own."""
    return _with(destination, sequenceIdentifiers=SequenceIdentifiers.OMIT.value)


def guest(service: str, *, namespace: str, gateway: str) -> Object:
    """A service of which a gateway is to take what its deliverers relay or hand over.

    Nothing else of it is for the gateway: neither does a change of it reload the gateway, nor is
    anything discarded there when it is gone or wrong.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": SERVICE,
        "metadata": {"name": service, "namespace": namespace},
        "spec": {HAND_OVER_TO: {"name": gateway}},
    }


def _withheld(destination: Object) -> dict[str, object]:
    """What stands for a URL in a Secret."""
    return {"destination": WITHHELD_URL} if "destinationFrom" in destination["spec"] else {}


def _with(body: Object, *, without: Collection[str] = (), **more: object) -> Object:
    spec = {name: value for name, value in body["spec"].items() if name not in without}
    return {**body, "spec": {**spec, **more}}
