"""The webhook's certificate: the leader makes and renews it, every replica serves it. A replica
without one makes it itself if no leader does. With cert-manager, replicas serve the certificate of
a mounted folder."""

import asyncio
import base64
import logging
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pillion_operator.certificates.authority import (
    CERTIFICATE,
    KEY,
    Authority,
    KeyPair,
    must_be_signed,
    renewed_authority,
    serving_certificate,
)
from pillion_operator.certificates.secret_store import KeptSecret
from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api, succeeds
from pillion_operator.cluster.types import (
    MUTATING_WEBHOOK,
    VALIDATING_WEBHOOK,
    Object,
    ResourceType,
)
from pillion_operator.settings import WebhookSettings
from pillion_sidecar.auth.tls import Certificate, read_certificate
from pillion_sidecar.filewatch import Unusable

logger = logging.getLogger("pillion.operator")

CA_NAME = "pillion-webhook-ca"
NAME = "pillion-webhook"
#: Seconds between two refreshes, and without a certificate. Without a configuration of the webhook
#: they grow from the second to the first.
INTERVAL = 30.0
EAGER_INTERVAL = 1.0
#: Seconds after which a replica without a certificate stops waiting for the leader. A leader that
#: keeps certificates in the Secret refreshes every INTERVAL; one that takes them from a folder, or
#: has no webhook, never writes the Secret.
PATIENCE = 2 * INTERVAL
#: Seconds for which the first certificate waits for the configuration: Helm installs it just after
#: the operator, and pods created before caBundle is written are missed.
GRACE = 3.0

#: Raises Unusable.
Use = Callable[[KeyPair], Awaitable[None]]


def renewed(authority: Authority | None, *, hosts: Sequence[str], now: float) -> Authority:
    """Return the CA and the certificate for ``now`` (seconds since the epoch); the same object if
    nothing is due. Both are renewed at two thirds of their lives."""
    new = renewed_authority(authority, name=CA_NAME, now=now)
    if new.serving is None or must_be_signed(new.serving, new.ca, hosts=hosts, now=now):
        return replace(new, serving=serving_certificate(new.ca, name=NAME, hosts=hosts, now=now))
    return new


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
    ) -> None:
        self._api = api
        self._settings = settings
        self._kept = KeptSecret(
            api, namespace=namespace, name=settings.secret, type="kubernetes.io/tls"
        )
        self._leads = leads
        self._use = use
        self._clock = clock
        self._hosts = (f"{settings.service}.{namespace}.svc", *settings.hosts)
        self._shown: KeyPair | None = None
        #: When the configuration was first missing, and the refreshes in a row without it after
        #: GRACE.
        self._absent_since: float | None = None
        self._absences = 0
        self._led = False
        #: Whether this replica leads, or the leader keeps no certificates.
        self._writes = False
        #: Since when it has waited for the leader without a certificate.
        self._patient_since: float | None = None

    async def run(self) -> None:
        while True:
            await succeeds(
                self.look(),
                "cannot refresh the webhook's certificate",
                extra={"event": "certificate-failed"},
                errors=(*FAILURES, Unusable),
            )
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next refresh, or until this replica becomes the leader. Only the leader may
        replace the caBundle of another CA; until then no pod is injected."""
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
        # The configuration may be installed just after the operator.
        return min(INTERVAL, EAGER_INTERVAL * 2.0 ** min(self._absences - 1, 10))

    async def look(self) -> None:
        """Renew what is due if this replica writes, and serve the certificate of the Secret. On
        every replica, trust comes first: caBundle has the CA before its certificate is served."""
        found = await self._kept.read()
        authority = self._kept.authority(found, extra={"event": "bad-certificate"})
        self._led = self._leads()
        self._writes = self._led or self._is_left_alone()
        if self._writes:
            authority = await self._renew(found, authority)
        if authority is None or authority.serving is None:
            return
        trusted = await self._publish(authority.bundle())
        if trusted and authority.serving != self._shown:
            await self._use(authority.serving)
            self._shown = authority.serving

    def _is_left_alone(self) -> bool:
        """Whether a leader that keeps certificates would have written the Secret by now. An error
        is harmless: both replicas publish the one Secret, which only one can create."""
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

    async def _renew(self, found: Object | None, authority: Authority | None) -> Authority | None:
        """Write what is due; None if another replica has written first."""
        # In a thread: making keys and signing block for milliseconds.
        new = await asyncio.to_thread(renewed, authority, hosts=self._hosts, now=self._clock.time())
        if new is authority:
            return authority
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
        server trusts it, or there has been no configuration for GRACE."""
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
        """Write one caBundle; return whether it is there now, or None without a configuration.

        Every replica may fill an empty one: it belongs to this version, which an older leader does
        not know.
        """
        configuration = await self._api.get(kind, None, name)
        if configuration is None:
            return None
        operations = bundle_patch(configuration, bundle=base64.b64encode(bundle).decode())
        if operations:
            clients = [one["clientConfig"] for one in configuration["webhooks"]]
            if not self._writes and any(client.get("caBundle") for client in clients):
                return False
            await self._api.patch(kind, None, name, operations)
        return True

    async def _publish_validation(self, name: str, bundle: bytes) -> None:
        """Older charts have no such configuration and no right to write it; injection does not
        depend on it."""
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


def bundle_patch(configuration: Object, *, bundle: str) -> list[Object]:
    """A JSON patch for the caBundle (base64) of each webhook."""
    writes: list[Object] = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if webhook["clientConfig"].get("caBundle") != bundle
    ]
    if not writes:
        return []
    # Fails the whole patch after a concurrent write.
    version = configuration["metadata"]["resourceVersion"]
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *writes]


async def serve_folder(folder: Path, *, use: Use, clock: Clock) -> None:
    """Serve the certificate of a folder, and each change of it."""
    shown: KeyPair | None = None
    while True:
        try:
            pair = await asyncio.to_thread(_read_pair, folder)
            if pair != shown:
                await use(pair)
                shown = pair
        except (OSError, Unusable) as error:
            logger.warning(
                "the webhook's certificate in %s could not be loaded: %s; it is tried again",
                folder,
                error,
                extra={"event": "certificate-failed"},
            )
        await clock.sleep(EAGER_INTERVAL if shown is None else INTERVAL)


def _read_pair(folder: Path) -> KeyPair:
    certificate, key = folder / CERTIFICATE, folder / KEY
    return KeyPair(certificate=certificate.read_bytes(), key=key.read_bytes())


def loaded(pair: KeyPair) -> Certificate:
    """Raises Unusable."""
    # ssl reads only files. The folder is private and removed at once.
    with tempfile.TemporaryDirectory(prefix="pillion-") as folder:
        certificate, key = Path(folder) / CERTIFICATE, Path(folder) / KEY
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        return read_certificate(certificate, key)
