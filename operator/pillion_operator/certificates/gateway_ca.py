"""The authority of gateways: the leader makes it, or takes a user's, and keeps it in one Secret."""

import logging
from collections.abc import Callable, Sequence

from prometheus_client import Gauge

from pillion_operator.certificates.authority import (
    STEP,
    Authority,
    BadMaterial,
    given_ca,
    must_be_signed,
    not_after,
    renewed_authority,
    replaced_authority,
    serving_certificate,
)
from pillion_operator.certificates.secret_store import Found, KeptSecret, decoded
from pillion_operator.certificates.tls import KeyPair
from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.cluster.types import SECRET

logger = logging.getLogger("pillion.operator")

#: The prefix of the names of CAs that are made here.
NAME = "pillion-gateway-ca"
#: Seconds between two refreshes, and after one that failed.
INTERVAL = 30.0
RETRY = 5.0


class GatewayAuthority:
    """The CA that signs gateways' certificates, and those that publishers trust."""

    def __init__(
        self,
        *,
        api: Api,
        namespace: str,
        secret: str,
        given: str | None,
        clock: Clock,
        changed: Callable[[], None],
        expiry: Gauge,
    ) -> None:
        """``secret`` keeps the authority; ``given`` is a user's Secret with the CA to take; both
        are in ``namespace``. ``changed`` is called for each change of the authority; ``expiry``
        gets the end of the CA."""
        self._api = api
        self._namespace = namespace
        self._given_name = given
        self._kept = KeptSecret(api, namespace=namespace, name=secret, type="Opaque")
        self._clock = clock
        self._changed = changed
        self._expiry = expiry
        self._authority: Authority | None = None
        #: The problem that was logged last.
        self._problem = ""

    def bundle(self) -> bytes | None:
        """Return the trusted CAs in PEM; None as long as there is none."""
        return None if self._authority is None else self._authority.bundle()

    def certificate(
        self, shown: KeyPair | None, *, name: str, hosts: Sequence[str]
    ) -> KeyPair | None:
        """Return a gateway's certificate: ``shown`` as long as it is valid, else a new one. Without
        an authority, ``shown``."""
        now = self._clock.time()
        if self._authority is None or not_after(self._authority.ca.certificate) <= now:
            return shown
        ca = self._authority.ca
        if shown is not None and not must_be_signed(shown, ca, hosts=hosts, now=now):
            return shown
        # Not in a thread: it takes a tenth of a millisecond, unless a given CA's key is RSA.
        return serving_certificate(ca, name=name, hosts=hosts, now=now)

    async def run(self) -> None:
        """Refresh until cancelled, first after one interval."""
        while True:
            await self._clock.sleep(RETRY if self._problem else INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Read the Secrets and renew what is due; log a failure."""
        try:
            await self._look()
        except FAILURES as error:
            self._report(str(error) or type(error).__name__)

    async def _look(self) -> None:
        found = await self._kept.read()
        stored = self._stored(found)
        # A Secret that somebody has changed is written again as it was.
        known = stored or self._authority
        given, problem = await self._given()
        # An authority in use was in the Secret: whoever deleted it wants another one.
        deleted = self._authority if found.secret is None else None
        if self._given_name is not None and given is None:
            self._report(problem if deleted is None else f"{problem}; {self._put_off()}")
            # Nothing can replace the deleted authority yet. Written again, it would be trusted
            # until it ends, and the deletion forgotten.
            if known is None or deleted is not None:
                return
            given = known.next_ca or known.ca
        now = self._clock.time()
        if deleted is not None:
            new = replaced_authority(deleted, name=NAME, now=now, given=given)
        else:
            new = renewed_authority(known, name=NAME, now=now, given=given)
        if new != stored and not await self._kept.write(found, new.to_data()):
            return
        if deleted is not None:
            self._report_replaced(new)
        if not problem:
            self._problem = ""
        self._use(new)

    def _put_off(self) -> str:
        return f"Secret {self._kept} was deleted: its authority is trusted until there is another"

    def _report_replaced(self, new: Authority) -> None:
        if new.next_ca is not None:
            what = f"another one signs in {STEP} s, and {STEP} s later it is no longer trusted"
        elif new.until:
            what = f"the one before is trusted for {STEP} s more"
        else:
            what = "only the one that signs now is trusted"
        logger.warning(
            "Secret %s was deleted, so its authority is given up: %s",
            self._kept,
            what,
            extra={"event": "gateway-authority-replaced"},
        )

    def _stored(self, found: Found) -> Authority | None:
        if not found.data:
            return None
        try:
            return Authority.from_data(found.data)
        except BadMaterial as error:
            logger.warning(
                "Secret %s: %s; its authority is written anew",
                self._kept,
                error,
                extra={"event": "bad-gateway-authority"},
            )
            return None

    async def _given(self) -> tuple[KeyPair | None, str]:
        """Return the CA in the user's Secret, or the problem with it."""
        if self._given_name is None:
            return None, ""
        secret = await self._api.get(SECRET, self._namespace, self._given_name)
        name = f"Secret {self._namespace}/{self._given_name}"
        if secret is None:
            return None, f"{name} is not there: make it, with tls.crt and tls.key"
        try:
            return given_ca(decoded(secret), now=self._clock.time()), ""
        except BadMaterial as error:
            return None, f"{name}: {error}"

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning(
                "the authority of gateways cannot be refreshed: %s; it is tried again",
                problem,
                extra={"event": "gateway-authority-failed"},
            )
        self._problem = problem

    def _use(self, authority: Authority) -> None:
        if authority == self._authority:
            return
        self._authority = authority
        self._expiry.set(not_after(authority.ca.certificate))
        logger.info(
            "the authority of gateways is that of Secret %s",
            self._kept,
            extra={"event": "gateway-authority-changed"},
        )
        self._changed()
