"""Access to a gateway: tokens and serving certificate. A sidecar has neither, and imports nothing
for them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillion_sidecar.auth.acceptor import MOST_CONNECTIONS, ConnectionAcceptor, Limits
from pillion_sidecar.auth.principal import own_principal
from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.service import AllowedPublisher
from pillion_sidecar.descriptors import SMALL_CONNECTIONS
from pillion_sidecar.filewatch import Following, Unusable, look_again, read_bounded
from pillion_sidecar.intake.limits import MOST_BODY_BYTES, MOST_WAITING
from pillion_sidecar.memory import container_limit, tls_connections
from pillion_sidecar.settings import Settings, TLSFiles
from pillion_sidecar.telemetry.gateway import GatewayMetrics

if TYPE_CHECKING:
    from pillion_sidecar.auth.tls import Certificate, ServingTLS
    from pillion_sidecar.auth.token_middleware import TokenMiddleware
    from pillion_sidecar.auth.tokens import TokenKeys

logger = logging.getLogger("pillion.auth")

MOST_TOKEN_BYTES = 16 << 10


def most_connections() -> int:
    """Return how many TLS connections fit in the container's memory."""
    return tls_connections(
        container_limit(),
        bodies=MOST_BODY_BYTES,
        plain=2 * SMALL_CONNECTIONS,
        waiting=MOST_WAITING,
        most=MOST_CONNECTIONS,
    )


class GatewayAccess:
    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        timers: Timers,
        publishers: Callable[[], Sequence[AllowedPublisher]],
        metrics: GatewayMetrics,
        connections: int = MOST_CONNECTIONS,
    ) -> None:
        """``publishers``: of the configuration in force. ``connections``: at most."""
        self._timers = timers
        self._metrics = metrics
        self._followed: list[Following[Any]] = []
        #: None: no token is required.
        self.tokens: TokenMiddleware | None = None
        #: For intake; None: a plain one is used.
        self.acceptor: ConnectionAcceptor | None = None
        keys, files = settings.token_keys, settings.intake_tls
        self._tls = None if files is None else self._encrypt(files)
        if keys is not None or self._tls is not None:
            self.acceptor = ConnectionAcceptor(
                clock=clock,
                timers=timers,
                observer=metrics,
                tls=None if self._tls is None else self._tls.context,
                asks_for_tokens=keys is not None,
                limits=Limits.of_gateway(connections),
            )
            if keys is not None:
                self._ask_for_tokens(keys, self.acceptor, clock=clock, publishers=publishers)
                if settings.gateway is not None and settings.gateway.token is not None:
                    self._follow_own_token(settings.gateway.token)

    @property
    def namespace(self) -> str | None:
        """The gateway's own; None without tokens."""
        return None if self.tokens is None else self.tokens.namespace

    @property
    def readiness(self) -> Mapping[str, Callable[[], str | None]]:
        checks: dict[str, Callable[[], str | None]] = {}
        if self.tokens is not None:
            checks["token-keys"] = self._keys_problem
        if self._tls is not None:
            checks["certificate"] = self._certificate_problem
        return checks

    async def look(self) -> None:
        for followed in self._followed:
            await followed.look()

    async def follow(self) -> None:
        """Read changed files again, for ever; return immediately without any."""
        await look_again(self._followed, timers=self._timers)

    # ------------------------------------------------------------------ tokens

    def _ask_for_tokens(
        self,
        file: Path,
        acceptor: ConnectionAcceptor,
        *,
        clock: Clock,
        publishers: Callable[[], Sequence[AllowedPublisher]],
    ) -> None:
        # Imported here: it takes 40 ms and 12 MB, which a sidecar does not need.
        from pillion_sidecar.auth.token_middleware import TokenMiddleware
        from pillion_sidecar.auth.tokens import read_keys

        self.tokens = TokenMiddleware(
            clock=clock,
            timers=self._timers,
            publishers=publishers,
            observer=self._metrics,
            proven=acceptor.prove,
            has_proven=acceptor.has_proven,
        )
        self._followed.append(
            Following(
                (file,),
                read=partial(read_keys, file),
                changed=partial(self._use_keys, self.tokens),
                refused=partial(self._refuse_keys, file),
            )
        )

    def _follow_own_token(self, file: Path) -> None:
        def changed(token: bytes) -> None:
            assert self.tokens is not None
            self.tokens.own = own_principal(token.strip())

        self._followed.append(
            Following(
                (file,),
                read=partial(read_bounded, file, maximum=MOST_TOKEN_BYTES),
                changed=changed,
                # What the gateway sends with it tells why.
                refused=lambda _: None,
            )
        )

    def _use_keys(self, tokens: "TokenMiddleware", keys: "TokenKeys") -> None:
        tokens.use_keys(keys)
        self._metrics.keys_read(len(keys.keys))
        logger.info(
            "tokens of %s for the audience %s are verified with %d keys",
            keys.issuer,
            keys.audience,
            len(keys.keys),
            extra={
                "event": "token-keys-loaded",
                "issuer": keys.issuer,
                "audience": keys.audience,
                "keys": len(keys.keys),
            },
        )

    def _refuse_keys(self, file: Path, error: Unusable) -> None:
        self._metrics.keys_read(None)
        logger.warning(
            "the token keys cannot be used: %s",
            error,
            extra={"event": "token-keys-refused", "file": str(file)},
        )

    def _keys_problem(self) -> str | None:
        assert self.tokens is not None
        return None if self.tokens.has_keys else "there are no keys yet to verify tokens with"

    # ------------------------------------------------------------------ the certificate

    def _encrypt(self, files: TLSFiles) -> "ServingTLS":
        from pillion_sidecar.auth.tls import ServingTLS, read_certificate

        tls = ServingTLS()
        self._followed.append(
            Following(
                (files.certificate, files.key),
                read=partial(read_certificate, files.certificate, files.key),
                changed=partial(self._use_certificate, tls, files),
                refused=partial(self._refuse_certificate, files),
            )
        )
        return tls

    def _use_certificate(
        self, tls: "ServingTLS", files: TLSFiles, certificate: "Certificate"
    ) -> None:
        tls.use(certificate)
        self._metrics.certificate_read(certificate.expires)
        expires = datetime.fromtimestamp(certificate.expires, UTC).isoformat()
        logger.info(
            "the certificate that expires at %s is in force",
            expires,
            extra={
                "event": "certificate-loaded",
                "file": str(files.certificate),
                "expires": expires,
            },
        )

    def _refuse_certificate(self, files: TLSFiles, error: Unusable) -> None:
        self._metrics.certificate_read(None)
        logger.warning(
            "the certificate cannot be used: %s",
            error,
            extra={"event": "certificate-refused", "file": str(files.certificate)},
        )

    def _certificate_problem(self) -> str | None:
        assert self._tls is not None
        return None if self._tls.has_certificate else "there is no certificate yet to serve with"
