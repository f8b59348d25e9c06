"""What should be there for a service now: its desired objects, with what only time makes due."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pillion_operator.clock import Clock
from pillion_operator.cluster.types import Object
from pillion_operator.desired.configuration import operator_token
from pillion_operator.desired.objects import desired_objects
from pillion_operator.desired.trust import Trust, hosts, standing
from pillion_operator.evaluation.references import is_gateway
from pillion_operator.injection.authority import due
from pillion_operator.injection.tls import KeyPair
from pillion_operator.names import gateway
from pillion_operator.reconciling.ports import Authority, Issuer
from pillion_operator.settings import DelivererDefaults
from pillion_operator.store import Key
from pillion_sidecar.config.rendered import Rendered

#: Seconds after which a gateway's certificate is looked at again at the latest: clocks are set, and
#: machines sleep.
MOST_PATIENCE = 21_600.0
#: And at the earliest: one whose authority is about to end is due all the time.
LEAST_PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The desired objects of one service, in the order in which they are to be made."""

    objects: tuple[Object, ...]
    #: Of what deliverers go by beside their configuration: the same for the same.
    mark: str
    #: Seconds after which to ask again though nothing has changed; None: never.
    again: float | None


class Wanted:
    """Works out the objects of services. Certificates that it has made it remembers until the
    cluster shows them."""

    def __init__(
        self,
        *,
        token_key: bytes,
        defaults: DelivererDefaults,
        authority: Authority,
        issuer: Issuer,
        clock: Clock,
    ) -> None:
        self._token_key = token_key
        self._defaults = defaults
        self._authority = authority
        self._issuer = issuer
        self._clock = clock
        self._certificates: dict[Key, KeyPair] = {}

    def of(
        self, service: Key, body: Object, *, rendered: Rendered, live: Sequence[Object]
    ) -> Desired:
        """What should be there for ``body``, of which ``live`` are the objects that are."""
        trust = self._trust(service, body, live)
        objects = desired_objects(
            body,
            rendered,
            token=operator_token(self._token_key, service.namespace, service.name),
            defaults=self._defaults,
            trust=trust,
        )
        return Desired(objects=objects, mark=trust.mark, again=self._again(trust))

    def forget(self, service: Key) -> None:
        """The service is gone."""
        self._certificates.pop(service, None)

    def _trust(self, service: Key, body: Object, live: Sequence[Object]) -> Trust:
        # What is not known at this moment stays as it stands there: a leader that has just begun
        # may not have been answered yet.
        there = standing(body, live)
        trust = Trust(gateway_ca=self._authority.bundle() or there.gateway_ca)
        if not is_gateway(body):
            return trust
        return replace(
            trust,
            token_keys=self._issuer.token_keys(service.namespace) or there.token_keys,
            serving=self._certificate(service, body, there.serving),
        )

    def _certificate(self, service: Key, body: Object, shown: KeyPair | None) -> KeyPair | None:
        name, names = gateway(service.name), hosts(body)
        made = self._certificates.get(service)
        for one in (shown, made):
            # A watch may show the one before for a while, or somebody has spoilt it.
            if one is not None and one == self._authority.certificate(one, name=name, hosts=names):
                break
        else:
            one = self._authority.certificate(None, name=name, hosts=names) or shown
        if one is not None:
            self._certificates[service] = one
        return one

    def _again(self, trust: Trust) -> float | None:
        if trust.serving is None:
            return None
        return min(MOST_PATIENCE, max(LEAST_PATIENCE, due(trust.serving) - self._clock.time()))
