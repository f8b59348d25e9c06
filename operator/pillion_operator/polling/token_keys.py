"""Refreshes the keys that verify service-account tokens, from the API server."""

import logging
from collections.abc import Callable

from prometheus_client import Counter

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.cluster.issuer import BadIssuer, TokenIssuer, read_issuer, token_keys
from pillion_operator.names import TOKEN_AUDIENCE

logger = logging.getLogger("pillion.operator")

#: Seconds between two refreshes, and after one that failed. A cluster that changes its key goes on
#: verifying by the old one for at least as long as its tokens live.
INTERVAL = 300.0
RETRY = 15.0
#: The share by which either varies at random, so that operators do not ask together.
SPREAD = 0.1


class IssuerKeeper:
    """The token issuer, as last read; a failed refresh keeps it."""

    def __init__(
        self,
        *,
        api: Api,
        clock: Clock,
        draw: Callable[[], float],
        changed: Callable[[], None],
        reads: Counter,
    ) -> None:
        """``draw`` gives a number from 0 to 1; ``changed`` is called for each change of what is
        known; ``reads`` has the label ``result``: read or failed."""
        self._api = api
        self._clock = clock
        self._draw = draw
        self._changed = changed
        self._reads = reads
        self._issuer: TokenIssuer | None = None
        self._failed = False

    def token_keys(self, namespace: str) -> bytes | None:
        """The file for the gateways of a namespace; None as long as nothing is known."""
        if self._issuer is None:
            return None
        return token_keys(self._issuer, namespace=namespace, audience=TOKEN_AUDIENCE)

    async def run(self) -> None:
        """Refresh for ever, first after one interval."""
        while True:
            pause = RETRY if self._failed else INTERVAL
            await self._clock.sleep(pause * (1.0 + SPREAD * (2.0 * self._draw() - 1.0)))
            await self.look()

    async def look(self) -> None:
        """Refresh once; a failure is logged."""
        try:
            issuer = await read_issuer(self._api)
        except (*FAILURES, BadIssuer) as error:
            self._failed = True
            self._reads.labels("failed").inc()
            logger.warning(
                "the keys of service-account tokens cannot be had: %s; gateways go on with those "
                "that they have",
                str(error) or type(error).__name__,
                extra={"event": "token-keys-failed"},
            )
            return
        self._failed = False
        self._reads.labels("read").inc()
        if issuer != self._issuer:
            self._issuer = issuer
            self._changed()
