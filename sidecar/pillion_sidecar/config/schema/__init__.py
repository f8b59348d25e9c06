"""The kinds of ``pillion.dev/v1alpha1``; validation, CRDs and ``docs/reference/resources.md``
come from here."""

from pillion_sidecar.config.schema.destination import LISTENER_DESTINATION
from pillion_sidecar.config.schema.filter import INDICATION_FILTER
from pillion_sidecar.config.schema.replay import INDICATION_REPLAY
from pillion_sidecar.config.schema.service import INDICATION_SERVICE
from pillion_sidecar.config.schema.subscription import INDICATION_SUBSCRIPTION

GROUP = "pillion.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
#: Required, with the value "true", on a Secret that a destination uses.
CREDENTIALS_LABEL = f"{GROUP}/credentials"
#: On ConfigMaps with MOF: "true".
CLASSES_LABEL = f"{GROUP}/classes"

KINDS = (
    INDICATION_SERVICE,
    LISTENER_DESTINATION,
    INDICATION_FILTER,
    INDICATION_SUBSCRIPTION,
    INDICATION_REPLAY,
)

__all__ = [
    "API_VERSION",
    "CLASSES_LABEL",
    "CREDENTIALS_LABEL",
    "GROUP",
    "INDICATION_FILTER",
    "INDICATION_REPLAY",
    "INDICATION_SERVICE",
    "INDICATION_SUBSCRIPTION",
    "KINDS",
    "LISTENER_DESTINATION",
    "VERSION",
]
