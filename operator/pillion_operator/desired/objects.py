"""All objects of an IndicationService. Pure."""

from pillion_operator.cluster.types import Object
from pillion_operator.desired.configuration import configuration_secrets
from pillion_operator.desired.gateway import gateway_objects
from pillion_operator.desired.sidecar_policy import sidecar_policy
from pillion_operator.desired.trust import NOTHING, Trust, trust_objects
from pillion_operator.injection.decision import is_sidecar_service
from pillion_operator.settings import DelivererDefaults
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.rendered import Rendered


def desired_objects(
    service: Object,
    rendered: Rendered,
    *,
    token: str,
    defaults: DelivererDefaults,
    trust: Trust = NOTHING,
    level: int = LEVEL,
    scaled: bool = False,
) -> tuple[Object, ...]:
    """The objects of ``service``, in the order in which they are to be made.

    The configuration comes first, and a gateway's certificate: its first pod then starts with it.
    ``scaled``: somebody else sets the number of a gateway's pods.
    """
    secrets = configuration_secrets(service, rendered, token=token, trust=trust, level=level)
    if is_sidecar_service(service):
        return (*secrets, *sidecar_policy(service, settings=defaults.network))
    gateway = gateway_objects(service, defaults=defaults, scaled=scaled)
    return (*secrets, *trust_objects(service, trust), *gateway)
