"""What should be there for a service now: its desired objects, with what only time makes due."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pillion_operator.cluster.scaling import scaler
from pillion_operator.cluster.types import STATEFUL_SET, Object
from pillion_operator.desired.configuration import operator_token
from pillion_operator.desired.objects import desired_objects
from pillion_operator.desired.trust import Trust, standing
from pillion_operator.evaluation.references import is_gateway
from pillion_operator.reconciling.ports import Authority, Issuer
from pillion_operator.reconciling.serving import ServingCertificates
from pillion_operator.settings import DelivererDefaults
from pillion_operator.store import Change, Key
from pillion_sidecar.config.rendered import Rendered


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The desired objects of one service, in the order in which they are to be made."""

    objects: tuple[Object, ...]
    #: Of what deliverers go by beside their configuration: the same for the same.
    mark: str
    #: Seconds after which to ask again though nothing has changed; None: never.
    again: float | None


class Wanted:
    """Works out the objects of services."""

    def __init__(
        self,
        *,
        token_key: bytes,
        defaults: DelivererDefaults,
        authority: Authority,
        issuer: Issuer,
        certificates: ServingCertificates,
    ) -> None:
        self._token_key = token_key
        self._defaults = defaults
        self._authority = authority
        self._issuer = issuer
        self._certificates = certificates

    def of(
        self,
        service: Key,
        body: Object,
        *,
        rendered: Rendered,
        level: int,
        live: Sequence[Object],
    ) -> Desired:
        """What should be there for ``body``, of which ``live`` are the objects that are.

        ``level``: that of the schema that ``rendered`` is written in.
        """
        trust, again = self._trust(service, body, live)
        objects = desired_objects(
            body,
            rendered,
            token=operator_token(self._token_key, service.namespace, service.name),
            defaults=self._defaults,
            trust=trust,
            level=level,
            scaled=any(scaler(one) for one in live if one["kind"] == STATEFUL_SET.kind),
        )
        return Desired(objects=objects, mark=trust.mark, again=again)

    def follow(self, change: Change) -> Key | None:
        """Take a change of the store into account; return the service that it makes do anew."""
        return self._certificates.follow(change)

    def forget(self, service: Key) -> None:
        """The service is gone."""
        self._certificates.forget(service)

    def _trust(
        self, service: Key, body: Object, live: Sequence[Object]
    ) -> tuple[Trust, float | None]:
        # What is not known at this moment stays as it stands there: a leader that has just begun
        # may not have been answered yet.
        there = standing(body, live)
        trust = Trust(gateway_ca=self._authority.bundle() or there.gateway_ca)
        if not is_gateway(body):
            self._certificates.forget(service)
            return trust, None
        serving = self._certificates.of(service, body, there.serving)
        keys = self._issuer.token_keys(service.namespace) or there.token_keys
        return replace(trust, token_keys=keys, serving=serving.pair), serving.again
