"""The certificate of each gateway: the one in its Secret while that will do, else one that is new.

A Secret that somebody has spoilt is as it was again. One that was deleted comes back with another
key: that is how one gets rid of a key which others may have.
"""

import logging
from collections import deque
from dataclasses import dataclass, field

from pillion_operator.certificates.authority import due
from pillion_operator.certificates.tls import KeyPair
from pillion_operator.cluster.repairs import Repairs
from pillion_operator.cluster.types import SECRET, Object
from pillion_operator.controllers.context import Context
from pillion_operator.desired.trust import hosts
from pillion_operator.evaluation.references import SERVICE
from pillion_operator.names import SERVICE_LABEL, gateway, tls_secret
from pillion_operator.store import Change, Key, uid_of

logger = logging.getLogger("pillion.operator")

#: Seconds after which a gateway's certificate is looked at again at the latest: clocks are set, and
#: machines sleep.
MOST_PATIENCE = 21_600.0
#: And at the earliest: one whose authority is about to end is due all the time.
LEAST_PATIENCE = 60.0
#: Certificates of one gateway that are remembered as void. Nobody gets them faster than repairs.
MOST_VOID = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    #: None: nothing yet.
    pair: KeyPair | None
    #: Seconds after which to ask again though nothing has changed; None: never.
    again: float | None


@dataclass(slots=True)
class _Memory:
    #: What should stand in its Secret, which a watch may not show yet, or which was spoilt.
    pair: KeyPair | None = None
    #: What should stand there no more, since the Secret was deleted.
    void: deque[KeyPair] = field(default_factory=lambda: deque(maxlen=MOST_VOID))
    #: It was deleted, and there is no other certificate yet.
    deleted: bool = False
    #: How often that was, of late.
    replaced: Repairs = field(default_factory=Repairs)


class ServingCertificates:
    """Remembers what should stand in the Secrets of gateways, and what never shall again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._memories: dict[Key, _Memory] = {}

    def follow(self, change: Change) -> Key | None:
        """Take a change of the store into account; return the service whose Secret was deleted.

        A write that was under way meanwhile may make the Secret again as it was. The watch tells of
        the deletion all the same, since each object has a uid of its own.
        """
        before = change.before
        if before is None or change.key.kind != SECRET.kind:
            return None
        if change.after is not None and uid_of(change.after) == uid_of(before):
            return None
        name = (before["metadata"].get("labels") or {}).get(SERVICE_LABEL)
        service = Key(SERVICE, change.key.namespace, str(name))
        memory = self._memories.get(service)
        if memory is None or change.key.name != tls_secret(service.name):
            return None
        if memory.pair is not None:
            memory.void.append(memory.pair)
        memory.pair, memory.deleted = None, True
        return service

    def of(self, service: Key, body: Object, shown: KeyPair | None) -> Serving:
        """What the Secret of a gateway should hold, which is seen to hold ``shown``."""
        memory = self._memories.setdefault(service, _Memory())
        # What is remembered comes first: a watch may show the one before for a while, and somebody
        # may have spoilt what stands there.
        for pair in (memory.pair, shown):
            if pair is None or pair in memory.void:
                continue
            if pair == self._certificate(pair, service, body):
                return self._serving(memory, pair)
        now = self._context.clock.monotonic()
        wait = memory.replaced.wait(now) if memory.deleted else 0.0
        if wait > 0:
            # Whoever keeps deleting it gets no new one each time.
            return Serving(pair=shown, again=wait)
        made = self._certificate(None, service, body)
        if made is None:
            return Serving(pair=shown, again=None)
        if memory.deleted:
            memory.replaced = memory.replaced.repaired(now)
            self._tell(service, body)
        return self._serving(memory, made)

    def forget(self, service: Key) -> None:
        self._memories.pop(service, None)

    def _certificate(self, pair: KeyPair | None, service: Key, body: Object) -> KeyPair | None:
        """``pair`` while it will do, else one that is new."""
        return self._context.authority.certificate(
            pair, name=gateway(service.name), hosts=hosts(body)
        )

    def _serving(self, memory: _Memory, pair: KeyPair) -> Serving:
        memory.pair, memory.deleted = pair, False
        left = due(pair) - self._context.clock.time()
        return Serving(pair=pair, again=min(MOST_PATIENCE, max(LEAST_PATIENCE, left)))

    def _tell(self, service: Key, body: Object) -> None:
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
        self._context.recorder.publish(
            body,
            type="Normal",
            reason="CertificateReplaced",
            note=f"Secret {name} was deleted: the gateway gets a new key and certificate.",
            action="Apply",
        )
