"""What a protocol says of itself. Values alone: no handler is imported before one is made."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme of URLs, in lower case."""

    name: str
    #: Where a URL names none.
    port: int
    #: Whether it means TLS.
    is_secure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A way to deliver indications to a listener."""

    #: The value of ``ListenerDestination.spec.protocol``, of metric labels and in journals.
    name: str
    #: What one delivery is, for ``kubectl explain``: an object and its source.
    summary: str
    #: A paragraph of the manual, in Markdown.
    manual: str
    schemes: tuple[Scheme, ...]
    #: ``module:callable``; see :class:`pillion_sidecar.handlers.context.Factory`.
    handler: str
    #: The blocks of ``spec.credentials`` that it can send.
    credentials: tuple[str, ...] = ("basic", "bearer")
    #: The extra of the distribution that the handler needs; empty: none.
    extra: str = ""

    @property
    def ports(self) -> Mapping[str, int]:
        """The default port of each scheme."""
        return {scheme.name: scheme.port for scheme in self.schemes}


def http_schemes(*, port: int = 80, tls_port: int = 443) -> tuple[Scheme, ...]:
    """http and https, with the ports of a URL without one."""
    return Scheme("http", port, is_secure=False), Scheme("https", tls_port, is_secure=True)
