"""What a deliverer is told on its command line, as opposed to by its resources."""

from dataclasses import dataclass, field
from pathlib import Path

from pillion_sidecar.config.addresses import AddressPolicy

#: Where publishers find a deliverer, and Prometheus its metrics, unless told otherwise.
INTAKE_PORT = 8288
TELEMETRY_PORT = 8289


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccess:
    """How this deliverer reaches the gateways that it relays or hands over to."""

    #: The URL; ``{service}`` in it stands for the name of the gateway's IndicationService.
    url: str
    #: The file of the authorities, in PEM, that its certificate must come from; None: those that
    #: the system trusts.
    ca: Path | None = None
    #: The file of the service-account token to show; None: none is shown.
    token: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSFiles:
    """The files of a serving certificate, in PEM. They are read anew when they change."""

    #: The certificate and those that lead to its authority.
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one deliverer."""

    #: The folder of resource files.
    resources: Path
    #: The folder of the journal; None: nothing is kept on disk.
    journal: Path | None = None
    #: The IndicationService to run as; None: the only one in the folder.
    service: str | None = None
    intake: Address = Address("127.0.0.1", INTAKE_PORT)
    telemetry: Address = Address("127.0.0.1", TELEMETRY_PORT)
    #: Where ``/v1/queues`` and ``/drain`` are; None: on the intake listener.
    administration: Address | None = None
    #: With what intake is served over TLS; None: it is plain HTTP.
    intake_tls: TLSFiles | None = None
    #: The file of the keys with which publishers' service-account tokens are verified; None: nobody
    #: is asked for one.
    token_keys: Path | None = None
    #: None: nothing can be relayed.
    gateway: GatewayAccess | None = None
    #: The file of the token with which the operator may read ``/v1/queues`` on the telemetry
    #: listener; None: nobody may there.
    operator_token_file: Path | None = None
    #: Whether to start without a good configuration, and take the first one that comes.
    wait_for_configuration: bool = False
    #: Which addresses destinations may lead to.
    addresses: AddressPolicy = field(default_factory=lambda: AddressPolicy(allow_loopback=True))
    maximum_destinations: int = 10_000
    #: Name servers (``IP`` or ``IP:PORT``) instead of the system's.
    nameservers: tuple[str, ...] = ()
