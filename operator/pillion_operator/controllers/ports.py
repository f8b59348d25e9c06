"""What the reconciles ask of the rest of the operator."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from pillion_operator.certificates.tls import KeyPair
from pillion_operator.cluster.types import Object
from pillion_operator.polling.reports import DelivererReport, Unreachable
from pillion_operator.store import Key

#: What asking a deliverer has come to.
Answer = DelivererReport | Unreachable


class Deliverers(Protocol):
    """What the deliverers of each service have last said: the gatherer."""

    def reports(self, namespace: str, service: str) -> tuple[Answer, ...]:
        """The last answer of each deliverer that was asked."""

    def gathered(self, namespace: str, service: str) -> bool:
        """Whether every deliverer that was there at first has been asked."""

    def rendered(self, namespace: str, service: str, revision: str) -> None:
        """A new revision was written: ask until every pod has it."""

    def service_gone(self, namespace: str, service: str) -> None:
        """The service is gone."""


class Poker(Protocol):
    """Has the kubelets refresh the configuration of pods at once."""

    def poke(self, pods: Iterable[Key], revision: str) -> None:
        """Annotate the pods, at its own pace."""


class Authority(Protocol):
    """The authority of gateways."""

    def bundle(self) -> bytes | None:
        """The CAs that publishers trust, in PEM; None as long as there is none."""

    def certificate(
        self, shown: KeyPair | None, *, name: str, hosts: Sequence[str]
    ) -> KeyPair | None:
        """A gateway's certificate: ``shown`` while it will do, else one that is new."""


class Issuer(Protocol):
    """Who issues the tokens of service accounts."""

    def token_keys(self, namespace: str) -> bytes | None:
        """What the gateways of a namespace verify them with; None as long as it is not known."""


class Recorder(Protocol):
    """Publishes Kubernetes Events."""

    def publish(self, regarding: Object, *, type: str, reason: str, note: str, action: str) -> None:
        """Publish one, sooner or later; never blocks and never fails."""


class Missed(Protocol):
    """The pods that should have a deliverer and have none."""

    def missed(self, service: Key) -> Sequence[str]:
        """The names of those of a service, as of the last look."""
