"""The command-line settings of a deliverer, as opposed to its resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pillion_sidecar.config.addresses import Address, AddressPolicy

#: Default ports for publishers and for Prometheus.
INTAKE_PORT = 8288
TELEMETRY_PORT = 8289
#: Environment variable of ``Settings.operator_console``: "true" or absent.
OPERATOR_CONSOLE = "PILLION_OPERATOR_CONSOLE"
#: Environment variable of ``Settings.pod_uid``.
POD_UID = "PILLION_POD_UID"
_INTAKE = Address("127.0.0.1", INTAKE_PORT)
_TELEMETRY = Address("127.0.0.1", TELEMETRY_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayEndpoint:
    """How this deliverer reaches the gateways that it relays or hands over to."""

    #: ``{service}`` stands for the name of the gateway's IndicationService.
    url: str
    #: PEM file of the authorities for its certificate; None: the system's.
    ca: Path | None = None
    #: File of the service-account token to send.
    token: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSFiles:
    """The PEM files of a serving certificate, read again when they change."""

    #: With the chain to its authority.
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEndpoint:
    """Where a plug-in is: a program to run, or a Unix socket."""

    #: The program and its arguments; empty with a socket.
    command: tuple[str, ...] = ()
    socket: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    #: The folder of resource files.
    resources: Path
    #: The folder of the journal; None: nothing is kept on disk.
    journal: Path | None = None
    #: Finds the journal at its stores when its folder is lost; None: only the folder knows it.
    session: str | None = None
    #: The UID of the pod, by which the stores of the journal say who claimed it; None: no pod.
    pod_uid: str | None = None
    #: The IndicationService to run as; None: the only one in the folder.
    service: str | None = None
    intake: Address = _INTAKE
    telemetry: Address = _TELEMETRY
    #: Where ``/v1/queues`` and ``/drain`` are; None: on the intake listener.
    administration: Address | None = None
    #: TLS of intake; None: plain HTTP.
    intake_tls: TLSFiles | None = None
    #: File of the keys that verify publishers' service-account tokens; None: no token is required.
    token_keys: Path | None = None
    #: None: nothing can be relayed.
    gateway: GatewayEndpoint | None = None
    #: File of the operator's token for ``/v1/queues`` on the telemetry listener; None: not served
    #: there.
    operator_token_file: Path | None = None
    #: Whether that token also reads outcomes, redrives, and retries, skips and purges queues.
    operator_console: bool = False
    #: Whether to start without a good configuration, and wait for one.
    wait_for_configuration: bool = False
    #: Permitted addresses of destinations.
    addresses: AddressPolicy = field(default_factory=lambda: AddressPolicy(allow_loopback=True))
    maximum_destinations: int = 10_000
    #: Name servers (``IP`` or ``IP:PORT``) instead of the system's.
    nameservers: tuple[str, ...] = ()
    #: The folder of the files that destinations with protocol File write; None: they are held.
    delivery_folder: Path | None = None
    #: The plug-ins that destinations may name.
    plugins: Mapping[str, PluginEndpoint] = field(default_factory=dict)
