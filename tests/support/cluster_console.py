"""The console of a cluster, over an API server and deliverers that a test makes up."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pillion_operator.clock import Clock, SystemClock
from pillion_operator.cluster.api import ApiError
from pillion_operator.cluster.types import Object
from pillion_operator.console.server import Console
from pillion_operator.polling.client import DelivererClient
from pillion_operator.polling.reports import Answer, DelivererReport, report_of
from pillion_sidecar.wire.queues import QueuePage, QueueStatus
from support.served import served

#: What may be done in which namespace; an empty one stands for all.
Rights = frozenset[tuple[str, str, str]]
EVERYWHERE: Rights = frozenset(
    {("get", "queues", ""), ("get", "outcomes", ""), ("update", "outcomes", "")}
)


def rights(namespace: str, *names: str) -> Rights:
    """``states``, ``outcomes`` and ``act``, as the console asks for them."""
    asked = {"states": ("get", "queues"), "outcomes": ("get", "outcomes")}
    asked["act"] = ("update", "outcomes")
    return frozenset((*asked[name], namespace) for name in names)


@dataclass
class FakeReviewer:
    """The API server: tokens with names and rights."""

    people: dict[str, Rights] = field(default_factory=lambda: {"admin": EVERYWHERE})
    away: bool = False
    #: Every question: the kind, and whose or what.
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def review(self, path: str, body: Object) -> Object:
        if self.away:
            raise ApiError(503, "ServiceUnavailable", "etcd is away")
        kind, spec = body["kind"], body["spec"]
        assert path.endswith(f"{kind.lower()}s")
        if kind == "TokenReview":
            token = spec["token"]
            self.asked.append((kind, token))
            if token not in self.people:
                return {"status": {"authenticated": False}}
            user = {"username": token, "groups": ["system:authenticated"], "uid": f"u-{token}"}
            return {"status": {"authenticated": True, "user": user}}
        asks = spec["resourceAttributes"]
        assert (asks["group"], asks["resource"]) == ("pillion.dev", "indicationservices")
        self.asked.append((kind, asks["namespace"]))
        may, right = self.people[spec["user"]], (asks["verb"], asks["subresource"])
        allowed = (*right, "") in may or (*right, asks["namespace"]) in may
        return {"status": {"allowed": allowed}}


@dataclass
class FakeDeliverers:
    """What the poller has."""

    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)
    address: str = "127.0.0.1"
    token: str = "the operator's"

    def show(
        self, namespace: str, pod: str, *queues: QueueStatus, service: str = "default"
    ) -> DelivererReport:
        """Show these queues of one more deliverer."""
        report = report_of(pod, [QueuePage(revision="r1", queues=list(queues))], at=1.0)
        self.add(namespace, report, service=service)
        return report

    def add(self, namespace: str, *answers: Answer, service: str = "default") -> None:
        self.answers.setdefault((namespace, service), []).extend(answers)

    def services(self) -> Iterator[tuple[str, str]]:
        return iter(list(self.answers))

    def reports(self, namespace: str, service: str) -> tuple[Answer, ...]:
        return tuple(self.answers[namespace, service])

    def find(self, namespace: str, pod: str) -> tuple[str, str] | None:
        for (where, _), answers in self.answers.items():
            if where == namespace and any(one.pod == pod for one in answers):
                return self.address, self.token
        return None


@dataclass
class ClusterConsole:
    """Its parts may be changed from any thread."""

    reviewer: FakeReviewer = field(default_factory=FakeReviewer)
    deliverers: FakeDeliverers = field(default_factory=FakeDeliverers)
    #: Where deliverers have their telemetry.
    port: int = 1
    url: str = ""

    def console(self, clock: Clock) -> Console:
        client = DelivererClient(clock=clock, port=self.port)
        made = Console(self.reviewer, clock=clock, client=client)
        made.show(self.deliverers)
        return made


@contextmanager
def cluster_console(cluster: ClusterConsole) -> Iterator[ClusterConsole]:
    """Serve it in a thread while the context lasts."""
    with served(lambda: cluster.console(SystemClock()).application()) as cluster.url:
        yield cluster


def names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{row['namespace']}/{row['pod']}/{row['name']}" for row in rows]
