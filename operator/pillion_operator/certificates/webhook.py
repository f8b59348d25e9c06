"""The webhook's certificate: the leader makes and renews it, every replica serves it.

A replica without a certificate makes one itself if no leader does. With cert-manager, a replica
serves the certificate of a mounted folder instead.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pillion_operator.certificates.authority import (
    CERTIFICATE,
    KEY,
    Authority,
    BadMaterial,
    must_be_signed,
    pair_in,
    renewed_authority,
    serving_certificate,
)
from pillion_operator.certificates.secret_store import Found, KeptSecret
from pillion_operator.certificates.tls import BadKeyPair, KeyPair
from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.cluster.types import (
    MUTATING_WEBHOOK,
    VALIDATING_WEBHOOK,
    Object,
    ResourceType,
)
from pillion_operator.settings import WebhookSettings

logger = logging.getLogger("pillion.operator")

#: The prefix of the CA's name, and the certificate's name.
CA_NAME = "pillion-webhook-ca"
NAME = "pillion-webhook"
#: Seconds between two refreshes: regularly, and without a certificate. Without a configuration of
#: the webhook they grow from the second to the first.
INTERVAL = 30.0
EAGER_INTERVAL = 1.0
#: Seconds after which a replica without a certificate no longer waits for the leader. A leader that
#: keeps certificates in the Secret refreshes every INTERVAL, and its successor at once. One that
#: takes them from a folder, or has no webhook, never writes the Secret.
PATIENCE = 2 * INTERVAL
#: Seconds for which the first certificate waits for the configuration. Helm installs that a moment
#: after the operator, and pods that are created before caBundle is written are missed.
GRACE = 3.0

#: Serves a new certificate; raises BadKeyPair.
Use = Callable[[KeyPair], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The content of the Secret."""

    authority: Authority
    serving: KeyPair

    def bundle(self) -> bytes:
        """Return the trusted CAs in PEM, for caBundle."""
        return self.authority.bundle()

    def to_data(self) -> dict[str, bytes]:
        """Return the data of a Secret, not yet in base64."""
        serving = {CERTIFICATE: self.serving.certificate, KEY: self.serving.key}
        return serving | self.authority.to_data()

    @classmethod
    def from_data(cls, data: Mapping[str, bytes]) -> "Material":
        """Reverse ``to_data``; raises BadMaterial."""
        authority = Authority.from_data(data)
        return cls(authority=authority, serving=pair_in(data, CERTIFICATE, KEY))


def renewed(material: Material | None, *, hosts: Sequence[str], now: float) -> Material:
    """Return the material for the time ``now`` (seconds since the epoch); the same object if
    nothing is due. CA and certificate are renewed at two thirds of their lives.

    ``hosts`` are the names and addresses of the certificate.
    """
    known = None if material is None else material.authority
    authority = renewed_authority(known, name=CA_NAME, now=now)
    if material is None or must_be_signed(material.serving, authority.ca, hosts=hosts, now=now):
        serving = serving_certificate(authority.ca, name=NAME, hosts=hosts, now=now)
        return Material(authority=authority, serving=serving)
    return material if authority is known else replace(material, authority=authority)


class CertificateKeeper:
    """Keeps the certificate in a Secret and its CA in the caBundle of the configurations."""

    def __init__(
        self,
        *,
        api: Api,
        settings: WebhookSettings,
        namespace: str,
        leads: Callable[[], bool],
        use: Use,
        clock: Clock,
        hosts: tuple[str, ...] = (),
    ) -> None:
        """``hosts`` are those of the certificate; default: the Service's name and those of
        ``settings``."""
        self._api = api
        self._settings = settings
        self._kept = KeptSecret(
            api, namespace=namespace, name=settings.secret, type="kubernetes.io/tls"
        )
        self._leads = leads
        self._use = use
        self._clock = clock
        self._hosts = hosts or (f"{settings.service}.{namespace}.svc", *settings.hosts)
        self._shown: KeyPair | None = None
        #: When the configuration was first found missing, and how many refreshes in a row found it
        #: so after GRACE.
        self._absent_since: float | None = None
        self._absences = 0
        self._led = False
        #: Whether this replica writes: it leads, or the leader does not keep certificates.
        self._writes = False
        #: Since when it waits for the leader, without a certificate to serve.
        self._patient_since: float | None = None

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            try:
                await self.look()
            except (*FAILURES, BadKeyPair) as error:
                logger.warning(
                    "the webhook's certificate could not be refreshed: %s; it is tried again",
                    error,
                    extra={"event": "certificate-failed"},
                )
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next refresh, but not after this replica becomes the leader.

        Only the leader may change a caBundle of another CA, and until then no pod is injected.
        """
        left = self._wait()
        while left > 0:
            step = left if self._led else min(left, EAGER_INTERVAL)
            await self._clock.sleep(step)
            left = 0.0 if self._leads() else left - step

    def _wait(self) -> float:
        if self._shown is None:
            return EAGER_INTERVAL
        if not self._absences:
            return INTERVAL
        # Installed together with the operator, the configuration may come a moment later.
        return min(INTERVAL, EAGER_INTERVAL * 2.0 ** min(self._absences - 1, 10))

    async def look(self) -> None:
        """Renew what is due if this replica writes, and serve the certificate of the Secret.

        On every replica trust goes first: a certificate is served once caBundle has its CA.
        """
        found = await self._kept.read()
        material = self._read(found)
        self._led = self._leads()
        self._writes = self._led or self._is_left_alone()
        if self._writes:
            material = await self._renew(found, material)
        if material is None:
            return
        trusted = await self._publish(material.bundle())
        if trusted and material.serving != self._shown:
            await self._use(material.serving)
            self._shown = material.serving

    def _is_left_alone(self) -> bool:
        """Whether a leader that keeps certificates would have written the Secret by now.

        An error does no harm: both replicas publish the one Secret, which only one can create.
        """
        if self._shown is not None:
            return False
        now = self._clock.monotonic()
        if self._patient_since is None:
            self._patient_since = now
        alone = now >= self._patient_since + PATIENCE
        if alone and not self._writes:
            logger.warning(
                "no leader has made the webhook's certificate for %g s, so this replica does it "
                "without leading",
                PATIENCE,
                extra={"event": "certificate-unattended"},
            )
        return alone

    def _read(self, found: Found) -> Material | None:
        if not found.data:
            return None
        try:
            return Material.from_data(found.data)
        except BadMaterial as error:
            logger.warning(
                "Secret %s: %s; the leader makes a new CA and certificate",
                self._kept,
                error,
                extra={"event": "bad-certificate"},
            )
            return None

    async def _renew(self, found: Found, material: Material | None) -> Material | None:
        """Write what is due to the Secret; None if another replica has written it first."""
        # In a thread: making keys and signing block for milliseconds.
        new = await asyncio.to_thread(renewed, material, hosts=self._hosts, now=self._clock.time())
        if new is material:
            return material
        if not await self._kept.write(found, new.to_data()):
            return None
        logger.info(
            "the webhook's certificate in Secret %s is renewed",
            self._kept,
            extra={"event": "certificate-renewed"},
        )
        return new

    async def _publish(self, bundle: bytes) -> bool:
        """Write caBundle if it differs; return whether its certificate may be served: the API
        server trusts it now, or there has been no configuration for GRACE."""
        name = self._settings.configuration
        if name is None:
            return True
        trusted = await self._publish_in(MUTATING_WEBHOOK, name, bundle)
        if trusted is None:
            return self._is_served_without(name)
        self._absences, self._absent_since = 0, None
        if trusted:
            await self._publish_validation(name, bundle)
        return trusted

    async def _publish_in(self, kind: ResourceType, name: str, bundle: bytes) -> bool | None:
        """Write caBundle in one configuration; return whether it is there now, or None if there is
        no configuration.

        Every replica may fill an empty one: it was installed with this version, of which an older
        leader knows nothing.
        """
        configuration = await self._api.get(kind, None, name)
        if configuration is None:
            return None
        operations = bundle_patch(configuration, bundle=base64.b64encode(bundle).decode())
        if operations:
            if not self._writes and trusts_somebody(configuration):
                return False
            await self._api.patch(kind, None, name, operations)
        return True

    async def _publish_validation(self, name: str, bundle: bytes) -> None:
        """Write the caBundle of the validation of resources. Older charts have no such
        configuration and give no right to it; injection does not depend on it."""
        try:
            await self._publish_in(VALIDATING_WEBHOOK, name, bundle)
        except FAILURES as error:
            logger.info(
                "caBundle of the ValidatingWebhookConfiguration %s could not be written: %s; it is "
                "tried again",
                name,
                error,
                extra={"event": "validation-untrusted"},
            )

    def _is_served_without(self, name: str) -> bool:
        """Whether to serve a certificate although no configuration trusts it."""
        now = self._clock.monotonic()
        if self._absent_since is None:
            self._absent_since = now
        if self._shown is None and now < self._absent_since + GRACE:
            return False
        self._absences += 1
        if self._absences == 1:
            logger.warning(
                "there is no MutatingWebhookConfiguration %s, so nothing is injected",
                name,
                extra={"event": "no-webhook-configuration"},
            )
        return True


def trusts_somebody(configuration: Object) -> bool:
    """Whether any webhook of the configuration has a caBundle."""
    return any(
        webhook["clientConfig"].get("caBundle") for webhook in configuration.get("webhooks") or ()
    )


def bundle_patch(configuration: Object, *, bundle: str) -> list[Object]:
    """Return the JSON patch that sets this caBundle (base64) in each webhook."""
    writes: list[Object] = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if webhook["clientConfig"].get("caBundle") != bundle
    ]
    if not writes:
        return []
    # If somebody has written the configuration meanwhile, the whole patch fails.
    version = configuration["metadata"]["resourceVersion"]
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *writes]


class CertificateFolder:
    """Serves the certificate of a folder, such as a mounted Secret of cert-manager."""

    def __init__(self, path: Path, *, use: Use, clock: Clock) -> None:
        self._path = path
        self._use = use
        self._clock = clock
        self._shown: KeyPair | None = None

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            try:
                await self.look()
            except (OSError, BadKeyPair) as error:
                logger.warning(
                    "the webhook's certificate in %s could not be loaded: %s; it is tried again",
                    self._path,
                    error,
                    extra={"event": "certificate-failed"},
                )
            await self._clock.sleep(EAGER_INTERVAL if self._shown is None else INTERVAL)

    async def look(self) -> None:
        """Serve the certificate in the folder if it has changed."""
        pair = await asyncio.to_thread(self._read)
        if pair != self._shown:
            await self._use(pair)
            self._shown = pair

    def _read(self) -> KeyPair:
        certificate, key = self._path / CERTIFICATE, self._path / KEY
        return KeyPair(certificate=certificate.read_bytes(), key=key.read_bytes())
