"""The authority of gateways: made or taken over by the leader, kept in one Secret."""

import logging
from collections.abc import Callable, Sequence

from prometheus_client import Gauge

from pillion_operator.certificates.authority import (
    STEP,
    Authority,
    BadMaterial,
    authority_from_data,
    authority_to_data,
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

#: What the names of CAs that are made here begin with.
NAME = "pillion-gateway-ca"
#: Seconds between two looks, and after one that failed.
INTERVAL = 30.0
RETRY = 5.0


class GatewayAuthority:
    """The CA that signs gateways' certificates, and those that publishers are to trust."""

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
        """``secret`` is kept here, ``given`` is one of somebody else's with the CA to take; both
        are in ``namespace``. ``changed`` is called for each change of what is trusted or signs;
        ``expiry`` is told when the CA ends."""
        self._api = api
        self._namespace = namespace
        self._given_name = given
        self._kept = KeptSecret(api, namespace=namespace, name=secret, type="Opaque")
        self._clock = clock
        self._changed = changed
        self._expiry = expiry
        self._authority: Authority | None = None
        #: What was said last of what is wrong; said once.
        self._told = ""

    def bundle(self) -> bytes | None:
        """The CAs to trust, in PEM; None as long as there is none."""
        return None if self._authority is None else self._authority.bundle()

    def certificate(
        self, shown: KeyPair | None, *, name: str, hosts: Sequence[str]
    ) -> KeyPair | None:
        """The certificate of a gateway: ``shown`` while it will do, else one that is new. None
        where there is neither it nor an authority."""
        now = self._clock.time()
        if self._authority is None or not_after(self._authority.ca.certificate) <= now:
            return shown
        ca = self._authority.ca
        if shown is not None and not must_be_signed(shown, ca, hosts=hosts, now=now):
            return shown
        # A tenth of a millisecond, unless the CA is given and its key is of RSA: no thread's work.
        return serving_certificate(ca, name=name, hosts=hosts, now=now)

    async def run(self) -> None:
        """Look again and again, for ever; the first time after an interval."""
        while True:
            await self._clock.sleep(RETRY if self._told else INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Read, renew what is due, and say what has changed; what fails is told."""
        try:
            await self._look()
        except FAILURES as error:
            self._tell(str(error) or type(error).__name__)

    async def _look(self) -> None:
        found = await self._kept.read()
        stored = self._stored(found)
        # A Secret that somebody has spoilt is written again as it was.
        known = stored or self._authority
        given, problem = await self._given()
        # What was used was in the Secret once: whoever has deleted that gives the authority up.
        deleted = self._authority if found.secret is None else None
        if self._given_name is not None and given is None:
            self._tell(problem if deleted is None else f"{problem}; {self._put_off()}")
            # Nothing can take the place of what was given up: written again, it would be trusted
            # until it ends, and nobody would know.
            if known is None or deleted is not None:
                return
            given = known.next_ca or known.ca
        now = self._clock.time()
        if deleted is not None:
            new = replaced_authority(deleted, name=NAME, now=now, given=given)
        else:
            new = renewed_authority(known, name=NAME, now=now, given=given)
        if new != stored and not await self._kept.write(found, authority_to_data(new)):
            return
        if deleted is not None:
            self._tell_replaced(new)
        if not problem:
            self._told = ""
        self._use(new)

    def _put_off(self) -> str:
        return f"Secret {self._kept} was deleted: its authority is trusted until there is another"

    def _tell_replaced(self, new: Authority) -> None:
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
            return authority_from_data(found.data)
        except BadMaterial as error:
            logger.warning(
                "Secret %s: %s; its authority is written anew",
                self._kept,
                error,
                extra={"event": "bad-gateway-authority"},
            )
            return None

    async def _given(self) -> tuple[KeyPair | None, str]:
        """The CA that somebody else keeps, or what is wrong with it."""
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

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            logger.warning(
                "the authority of gateways cannot be looked after: %s; it is tried again",
                problem,
                extra={"event": "gateway-authority-failed"},
            )
        self._told = problem

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
