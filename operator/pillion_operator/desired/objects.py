"""Everything that should be there for an IndicationService. Pure."""

from pillion_operator.cluster.types import Object
from pillion_operator.desired.configuration import configuration_secrets
from pillion_operator.desired.gateway import gateway_objects
from pillion_operator.settings import DelivererDefaults
from pillion_sidecar.config.rendered import Rendered
from pillion_sidecar.config.resources import DelivererMode


def desired_objects(
    service: Object, rendered: Rendered, *, token: str, defaults: DelivererDefaults
) -> tuple[Object, ...]:
    """The objects of ``service``, in the order in which they are to be made.

    The configuration comes first: a gateway's first pod then starts with it.
    """
    secrets = configuration_secrets(service, rendered, token=token)
    mode = ((service.get("spec") or {}).get("deliverer") or {}).get("mode")
    if mode != DelivererMode.GATEWAY:
        return secrets
    return (*secrets, *gateway_objects(service, defaults=defaults))
