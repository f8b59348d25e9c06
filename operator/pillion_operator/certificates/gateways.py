"""The authority of gateways, their certificates, and the objects that hold them. The leader makes
the authority, or takes a user's, and keeps it in one Secret."""

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client import Gauge

from pillion_operator.certificates.authority import (
    CA_CERTIFICATE,
    CERTIFICATE,
    KEY,
    STEP,
    Authority,
    BadMaterial,
    KeyPair,
    due,
    given_ca,
    must_be_signed,
    not_after,
    pair_in,
    renewed_authority,
    replaced_authority,
    serving_certificate,
)
from pillion_operator.certificates.secret_store import KeptSecret, decoded, encoded
from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.cluster.ownership import belongs, managed
from pillion_operator.cluster.repairs import Repairs
from pillion_operator.cluster.types import CONFIG_MAP, SECRET, Object, labels_of
from pillion_operator.events import EventRecorder
from pillion_operator.names import (
    GATEWAY_CA,
    RENDERED,
    SERVICE_LABEL,
    TOKEN_KEYS,
    configuration_secret,
    gateway,
    headless,
    tls_secret,
)
from pillion_operator.settings import OperatorSettings
from pillion_operator.store import Change, Key, uid_of
from pillion_sidecar.config.schema import CLASSES_LABEL, CREDENTIALS_LABEL, INDICATION_SERVICE

logger = logging.getLogger("pillion.operator")

NAME = "pillion-gateway-ca"
#: Seconds between two refreshes, and after a failed one.
INTERVAL = 30.0
RETRY = 5.0
#: Maximum seconds between two checks of a certificate: clocks are set and machines sleep.
MOST_PATIENCE = 21_600.0
#: Minimum seconds: just before its authority ends, a certificate is always due.
LEAST_PATIENCE = 60.0
#: Maximum void certificates remembered of a gateway; the waits between repairs bound their rate.
MOST_VOID = 16


class GatewayAuthority:
    def __init__(
        self,
        *,
        api: Api,
        settings: OperatorSettings,
        clock: Clock,
        changed: Callable[[], None],
        expiry: Gauge,
    ) -> None:
        """``changed`` is called for each change of the authority; ``expiry`` gets the end of the
        CA."""
        self._api = api
        self._namespace = settings.namespace
        self._given_name = settings.gateway_authority
        self._kept = KeptSecret(
            api, namespace=settings.namespace, name=settings.gateway_secret, type="Opaque"
        )
        self._clock = clock
        self._changed = changed
        self._expiry = expiry
        self._authority: Authority | None = None
        #: The last logged problem.
        self._problem = ""

    def bundle(self) -> bytes | None:
        return None if self._authority is None else self._authority.bundle()

    def certificate(
        self, shown: KeyPair | None, *, name: str, hosts: Sequence[str]
    ) -> KeyPair | None:
        """Return ``shown`` as long as it is valid or there is no authority, else a new
        certificate."""
        now = self._clock.time()
        if self._authority is None or not_after(self._authority.ca.certificate) <= now:
            return shown
        ca = self._authority.ca
        if shown is not None and not must_be_signed(shown, ca, hosts=hosts, now=now):
            return shown
        # Not in a thread: it takes 0.1 ms, unless a given CA's key is RSA.
        return serving_certificate(ca, name=name, hosts=hosts, now=now)

    async def run(self) -> None:
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
        stored = self._kept.authority(found, extra={"event": "bad-gateway-authority"})
        # A Secret that somebody has changed is restored.
        known = stored or self._authority
        given, problem = await self._given()
        # An authority in use was in the Secret: deleting the Secret asks for a new one.
        deleted = self._authority if found is None else None
        if self._given_name is not None and given is None:
            if deleted is not None:
                problem += f"; Secret {self._kept} was deleted: its authority is trusted until "
                problem += "there is another"
            self._report(problem)
            # Nothing can replace the deleted authority yet. Written again, it would be trusted to
            # its end, and the deletion forgotten.
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

    async def _given(self) -> tuple[KeyPair | None, str]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    pair: KeyPair | None
    again: float | None


@dataclass(slots=True)
class _Memory:
    #: The certificate for its Secret; the watch may still show another.
    pair: KeyPair | None = None
    #: Must not come back: their Secret was deleted.
    void: deque[KeyPair] = field(default_factory=lambda: deque(maxlen=MOST_VOID))
    #: The Secret was deleted, and there is no new certificate yet.
    deleted: bool = False
    replaced: Repairs = field(default_factory=Repairs)


class ServingCertificates:
    """The certificate of each gateway: the one in its Secret while it is valid, else a new one. A
    changed Secret is restored. Deleting it replaces the key, for use after a leak."""

    def __init__(
        self, *, authority: GatewayAuthority, clock: Clock, recorder: EventRecorder
    ) -> None:
        self._authority = authority
        self._clock = clock
        self._recorder = recorder
        self._memories: dict[Key, _Memory] = {}

    def follow(self, change: Change) -> Key | None:
        """Update by a change of the store; return the service whose Secret was deleted.

        A concurrent write may recreate the Secret with the old key; its other uid still shows the
        deletion.
        """
        before = change.before
        if before is None or change.key.kind != SECRET.kind:
            return None
        if change.after is not None and uid_of(change.after) == uid_of(before):
            return None
        name = labels_of(before).get(SERVICE_LABEL)
        service = Key(INDICATION_SERVICE.name, change.key.namespace, str(name))
        memory = self._memories.get(service)
        if memory is None or change.key.name != tls_secret(service.name):
            return None
        if memory.pair is not None:
            memory.void.append(memory.pair)
        memory.pair, memory.deleted = None, True
        return service

    def of(self, service: Key, body: Object, shown: KeyPair | None) -> Serving:
        """Return the certificate for the Secret of a gateway, which now holds ``shown``."""
        memory = self._memories.setdefault(service, _Memory())
        # The remembered one first: the watch may show an earlier or a changed one.
        for pair in (memory.pair, shown):
            if pair is None or pair in memory.void:
                continue
            if pair == self._certificate(pair, service, body):
                return self._serving(memory, pair)
        now = self._clock.monotonic()
        wait = memory.replaced.wait(now) if memory.deleted else 0.0
        if wait > 0:
            # Repeated deletions get new keys at growing intervals.
            return Serving(pair=shown, again=wait)
        made = self._certificate(None, service, body)
        if made is None:
            return Serving(pair=shown, again=None)
        if memory.deleted:
            memory.replaced = memory.replaced.repaired(now)
            self._report(service, body)
        return self._serving(memory, made)

    def forget(self, service: Key) -> None:
        self._memories.pop(service, None)

    def _certificate(self, pair: KeyPair | None, service: Key, body: Object) -> KeyPair | None:
        return self._authority.certificate(pair, name=gateway(service.name), hosts=hosts(body))

    def _serving(self, memory: _Memory, pair: KeyPair) -> Serving:
        memory.pair, memory.deleted = pair, False
        left = due(pair) - self._clock.time()
        return Serving(pair=pair, again=min(MOST_PATIENCE, max(LEAST_PATIENCE, left)))

    def _report(self, service: Key, body: Object) -> None:
        name = tls_secret(service.name)
        logger.info(
            "Secret %s/%s was deleted: issued a new key and certificate to gateway %s",
            service.namespace,
            name,
            service.name,
            extra={
                "event": "gateway-certificate-replaced",
                "namespace": service.namespace,
                "service": service.name,
            },
        )
        self._recorder.publish(
            body,
            type="Normal",
            reason="CertificateReplaced",
            note=f"Secret {name} was deleted: the gateway gets a new key and certificate.",
            action="Apply",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The trust material of one service; None for what is unknown or does not apply."""

    gateway_ca: bytes | None = None
    #: The keys that verify publishers' tokens, for a gateway.
    token_keys: bytes | None = None
    serving: KeyPair | None = None

    @property
    def mark(self) -> str:
        parts = (self.gateway_ca, self.token_keys, self.serving and self.serving.certificate)
        return hashlib.sha256(b"\0".join(part or b"" for part in parts)).hexdigest()[:16]


NOTHING = Trust()


def hosts(service: Object) -> tuple[str, ...]:
    """The names and addresses of a gateway: its Service, its pods behind the headless Service, and
    a forwarded port."""
    metadata = service["metadata"]
    name, namespace = gateway(metadata["name"]), metadata["namespace"]
    of_pods = f"*.{headless(metadata['name'])}.{namespace}.svc"
    within = f"{name}.{namespace}"
    return (
        *(name, within, f"{within}.svc", f"{within}.svc.cluster.local"),
        *(of_pods, f"{of_pods}.cluster.local"),
        *("localhost", "127.0.0.1", "::1"),
    )


def standing(service: Object, live: Iterable[Object]) -> Trust:
    name = service["metadata"]["name"]
    own = {
        body["metadata"]["name"]: decoded(body)
        for body in live
        if body["kind"] == SECRET.kind and belongs(body, service)
    }
    first = own.get(configuration_secret(name, 0), {})
    try:
        serving = pair_in(own.get(tls_secret(name), {}), CERTIFICATE, KEY)
    except BadMaterial:
        serving = None
    return Trust(
        gateway_ca=first.get(GATEWAY_CA), token_keys=first.get(TOKEN_KEYS), serving=serving
    )


def trust_objects(service: Object, trust: Trust) -> Sequence[Object]:
    made = []
    name = service["metadata"]["name"]
    if trust.serving is not None:
        # The watch on Secrets selects the label; a destination may only use the value "true".
        labels = {CREDENTIALS_LABEL: RENDERED}
        head = managed(SECRET, tls_secret(name), service=service, labels=labels)
        data = {
            CERTIFICATE: trust.serving.certificate,
            KEY: trust.serving.key,
            CA_CERTIFICATE: trust.gateway_ca or b"",
        }
        made.append({**head, "type": "kubernetes.io/tls", "data": encoded(data)})
    if trust.gateway_ca is not None:
        # The watch on ConfigMaps selects the label; a service may only use the value "true".
        labels = {CLASSES_LABEL: RENDERED}
        head = managed(CONFIG_MAP, gateway(name), service=service, labels=labels)
        made.append({**head, "data": {CA_CERTIFICATE: trust.gateway_ca.decode()}})
    return made
