"""What a protocol declares: values only, so that no handler is imported before it is needed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pillion_sidecar.fields import Field, Integer, Rule, declared, resource, structure

#: Parts of URLs. Each deliverer judges which texts with two colons are IPv6 addresses.
HOST = r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])"
PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
LOOPBACK_HOST = r"((?i:localhost)|127\.[0-9]+\.[0-9]+\.[0-9]+|\[::1\])"


@dataclass(frozen=True, slots=True)
class Scheme:
    """In lower case."""

    name: str
    #: Default port; None: its URLs name no network address, such as ``plugin://NAME/path``.
    port: int | None
    #: Uses TLS.
    is_secure: bool
    #: TLS begins after the protocol's greeting.
    starts_tls: bool = False
    #: UDP.
    is_datagram: bool = False


#: Blocks of ``spec.credentials`` that become a header of HTTP.
HTTP_CREDENTIALS = ("basic", "bearer", "oauth2")


@dataclass(frozen=True, slots=True)
class OptionsFault:
    """A fault of options, for which the destination is held."""

    #: In the object of the options.
    field: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class URLForm:
    """What the whole URL must match, beyond the rules for all URLs."""

    #: What RE2 and ``re`` share.
    regex: str
    message: str
    #: A sentence.
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    #: The value of ``ListenerDestination.spec.protocol``, of metric labels and in journals.
    name: str
    #: An object and its source, for ``kubectl explain``.
    summary: str
    #: A Markdown paragraph for the manual.
    manual: str
    schemes: tuple[Scheme, ...]
    #: ``module:callable``; see :class:`pillion_sidecar.handlers.context.Factory`.
    handler: str
    url_forms: tuple[URLForm, ...] = ()
    #: Supported blocks of ``spec.credentials``.
    credentials: tuple[str, ...] = ("basic", "bearer")
    #: Those without which nothing can be sent.
    required_credentials: tuple[str, ...] = ()
    #: Whether its requests can go through an HTTP proxy.
    takes_proxy: bool = False
    #: Required extra of the distribution, or empty.
    extra: str = ""
    #: The package that the extra installs. The handler loads it at the first delivery.
    library: str = ""
    #: The first level of the schema that has it; see :mod:`pillion_sidecar.config.levels`.
    level: int = 1
    #: A :func:`pillion_sidecar.fields.resource`: its fields are in ``spec``, in the object
    #: ``options_name``. The handler gets a value of it as ``ListenerDestination.options``.
    options: type | None = None
    option_rules: tuple[Rule, ...] = ()
    #: Whether ``options_name`` must be written.
    options_required: bool = False
    #: Maximum number of deliveries that the handler takes at once, for an outcome each.
    most_at_once: int = 1
    #: Rules over the spec of a destination; they must hold for other protocols.
    rules: tuple[Rule, ...] = ()
    #: Gets a value of ``options``: what the API server cannot check.
    check: Callable[[Any], OptionsFault | None] | None = None
    #: Gets a value of ``options``: the URLs that they name, each with its place in them.
    urls: Callable[[Any], Iterable[tuple[tuple[str | int, ...], str]]] | None = None
    #: Gets a value of ``options`` and the credentials, complete: what only the Secrets tell. The
    #: field is one of ``spec.credentials``, and no text shows any part of a secret.
    check_credentials: Callable[[Any, Any], OptionsFault | None] | None = None

    @property
    def options_name(self) -> str:
        # NATS is nats, and CloudEvents is cloudEvents.
        return self.name.lower() if self.name.isupper() else self.name[0].lower() + self.name[1:]

    @property
    def options_field(self) -> Field | None:
        if self.options is None:
            return None
        fields = structure(self.options, rules=self.option_rules)
        return Field(self.options_name, fields, f"Options of protocol {self.name}.")

    @property
    def ports(self) -> Mapping[str, int | None]:
        return {scheme.name: scheme.port for scheme in self.schemes}


#: Over the options.
BATCH_RULES = (
    Rule(
        cel="self.maxDelaySeconds == 0 || self.maxBatch > 1",
        holds=lambda options: not options["maxDelaySeconds"] or options["maxBatch"] > 1,
        field="maxDelaySeconds",
        message="needs a maxBatch greater than 1",
        remedy="Set maxBatch too, or remove maxDelaySeconds.",
    ),
)


@resource
class BatchOptions:
    """Of a protocol that can deliver several indications in one request."""

    max_batch: int = declared(
        default=1,
        type=Integer(minimum=1, maximum=1000),
        description="Maximum number of indications in one request, which has one answer for all "
        "of them. 1: each indication has a request of its own.",
    )
    max_delay_seconds: float = declared(
        default=0.0,
        type=Integer(minimum=0, maximum=60),
        description="Maximum seconds for which an indication waits until maxBatch of them go in "
        "one request. It does not wait while a request is under way, nor for a retry. 0: the first "
        "one goes at once.",
    )


def http_schemes(*, port: int = 80, tls_port: int = 443) -> tuple[Scheme, ...]:
    """http and https with their default ports."""
    return Scheme("http", port, is_secure=False), Scheme("https", tls_port, is_secure=True)
