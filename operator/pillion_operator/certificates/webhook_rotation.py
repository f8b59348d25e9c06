"""Keeps the webhook's certificate: made and renewed by the leader, shown by every replica.

Where no leader does so, a replica that has no certificate makes it.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from pillion_operator.certificates.authority import CERTIFICATE, KEY, BadMaterial
from pillion_operator.certificates.secret_store import Found, KeptSecret
from pillion_operator.certificates.tls import BadKeyPair, KeyPair
from pillion_operator.certificates.webhook_material import Material, from_data, renewed, to_data
from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.cluster.types import MUTATING_WEBHOOK, VALIDATING_WEBHOOK, Object
from pillion_operator.settings import WebhookSettings

logger = logging.getLogger("pillion.operator")

#: Seconds between two looks, and as long as there is no certificate at all. While there is no
#: configuration of the webhook, from the latter on, ever longer, to the former.
INTERVAL = 30.0
EAGER_INTERVAL = 1.0
#: Seconds for which a replica without a certificate leaves it to the leader. One that keeps
#: certificates here looks every INTERVAL, and where it dies the next one looks at once. One that
#: takes them from a folder, or serves no webhook, never does, and leads until this one is ready.
PATIENCE = 2 * INTERVAL
#: Seconds for which a first certificate waits for the configuration: whoever installs both applies
#: it a moment after the operator, and pods that are made before caBundle is written are missed.
GRACE = 3.0

#: Takes a new certificate into use; raises BadKeyPair.
Use = Callable[[KeyPair], Awaitable[None]]


class CertificateKeeper:
    """Certificates of the operator's own, in a Secret."""

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
        """``leads``: whether this replica is the one that writes, at this moment. ``hosts`` are
        those of the certificate, the Service's name unless stated."""
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
        #: Since when looks have found no configuration of the webhook, and how many in a row since
        #: none was waited for any more.
        self._absent_since: float | None = None
        self._absences = 0
        self._led = False
        #: Whether it writes: it leads, or nobody does what the leader should.
        self._writes = False
        #: Since when it has left that to the leader, without a certificate to show.
        self._patient_since: float | None = None

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            try:
                await self.look()
            except (*FAILURES, BadKeyPair) as error:
                logger.warning(
                    "the webhook's certificate could not be looked after: %s; it is tried again",
                    error,
                    extra={"event": "certificate-failed"},
                )
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next look: no longer than until this replica leads.

        A configuration that trusts somebody else is the leader's to change, and until then nothing
        is injected.
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
        # Installed together with the operator, it may come a moment later.
        return min(INTERVAL, EAGER_INTERVAL * 2.0 ** min(self._absences - 1, 10))

    async def look(self) -> None:
        """Renew what is due where this replica leads, and show what the Secret holds.

        Where nobody who leads does the former, any replica that has nothing to show does. Trust
        goes before use, on every replica: a certificate is shown once caBundle has its CA.
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
        """Whether a leader would have acted by now, if it keeps certificates here.

        To wrong it does no harm: both publish what one Secret holds, which only one of them makes.
        """
        if self._shown is not None:
            return False
        now = self._clock.monotonic()
        if self._patient_since is None:
            self._patient_since = now
        alone = now >= self._patient_since + PATIENCE
        if alone and not self._writes:
            logger.warning(
                "nobody has looked after the webhook's certificate for %g s, so this replica does, "
                "though it does not lead",
                PATIENCE,
                extra={"event": "certificate-unattended"},
            )
        return alone

    def _read(self, found: Found) -> Material | None:
        if not found.data:
            return None
        try:
            return from_data(found.data)
        except BadMaterial as error:
            logger.warning(
                "Secret %s: %s; the leader makes a new CA and certificate",
                self._kept,
                error,
                extra={"event": "bad-certificate"},
            )
            return None

    async def _renew(self, found: Found, material: Material | None) -> Material | None:
        """Write the Secret where something is due; None where another was there first."""
        # Making keys and signing take milliseconds in which the loop would answer nobody.
        new = await asyncio.to_thread(renewed, material, hosts=self._hosts, now=self._clock.time())
        if new is material:
            return material
        if not await self._kept.write(found, to_data(new)):
            return None
        logger.info(
            "the webhook's certificate in Secret %s is renewed",
            self._kept,
            extra={"event": "certificate-renewed"},
        )
        return new

    async def _publish(self, bundle: bytes) -> bool:
        """Write caBundle where it differs; return whether its certificate may be shown: the API
        server trusts it now, or there has been no configuration for GRACE.

        One that is empty is any replica's to write: it was installed with this version, and an
        older one, which may lead until this is ready, knows nothing of it.
        """
        name = self._settings.configuration
        if name is None:
            return True
        configuration = await self._api.get(MUTATING_WEBHOOK, None, name)
        if configuration is None:
            return self._does_without(name)
        self._absences, self._absent_since = 0, None
        operations = bundle_patch(configuration, bundle=base64.b64encode(bundle).decode())
        if operations:
            if not self._writes and trusts_somebody(configuration):
                return False
            await self._api.patch(MUTATING_WEBHOOK, None, name, operations)
        await self._publish_validation(name, bundle)
        return True

    async def _publish_validation(self, name: str, bundle: bytes) -> None:
        """The same for the configuration by which resources are judged as they are applied. An
        older chart has none, and gives no right to it; injection does not depend on it."""
        try:
            configuration = await self._api.get(VALIDATING_WEBHOOK, None, name)
            if configuration is None:
                return
            operations = bundle_patch(configuration, bundle=base64.b64encode(bundle).decode())
            if operations and (self._writes or not trusts_somebody(configuration)):
                await self._api.patch(VALIDATING_WEBHOOK, None, name, operations)
        except FAILURES as error:
            logger.info(
                "caBundle of the ValidatingWebhookConfiguration %s could not be written: %s; it is "
                "tried again",
                name,
                error,
                extra={"event": "validation-untrusted"},
            )

    def _does_without(self, name: str) -> bool:
        """Whether a certificate may be shown though nobody is told to trust it."""
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
    """Whether any of its webhooks has a caBundle."""
    return any(
        webhook["clientConfig"].get("caBundle") for webhook in configuration.get("webhooks") or ()
    )


def bundle_patch(configuration: Object, *, bundle: str) -> list[Object]:
    """The JSON patch that gives each webhook of the configuration this caBundle (base64)."""
    writes: list[Object] = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if webhook["clientConfig"].get("caBundle") != bundle
    ]
    if not writes:
        return []
    # Somebody may have written it anew meanwhile: then none of it is done.
    version = configuration["metadata"]["resourceVersion"]
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *writes]


class CertificateFolder:
    """Certificates that somebody else keeps in a folder, such as cert-manager's Secret mounted."""

    def __init__(self, path: Path, *, use: Use, clock: Clock) -> None:
        self._path = path
        self._use = use
        self._clock = clock
        self._shown: KeyPair | None = None

    async def run(self) -> None:
        """Look again and again, for ever."""
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
        """Show what is in the folder, if it has changed."""
        pair = await asyncio.to_thread(self._read)
        if pair != self._shown:
            await self._use(pair)
            self._shown = pair

    def _read(self) -> KeyPair:
        certificate, key = self._path / CERTIFICATE, self._path / KEY
        return KeyPair(certificate=certificate.read_bytes(), key=key.read_bytes())
