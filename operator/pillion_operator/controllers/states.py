"""What the reconciles remember of each service; it can be computed again."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.store import Key, key_of
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.rendered import Packer, Rendered

#: The kind of key that reconciles only the status of a service.
SERVICE_STATUS = "IndicationService/status"
#: Maximum remembered revisions. Deliverers on older ones count as behind.
MOST_REVISIONS = 200


class Rollout:
    def __init__(self) -> None:
        self.revision: str | None = None
        self.content: Mapping[Key, str] = {}
        #: The number of the revision that first held the object's current state.
        self._since: dict[Key, int] = {}
        self._numbers: dict[str, int] = {}
        self._latest = 0

    def advance(self, revision: str, content: Mapping[Key, str]) -> set[Key]:
        """Record a rendered revision; return the objects that it adds, changes or removes."""
        if revision == self.revision:
            return set()
        self._latest += 1
        self._numbers.pop(revision, None)
        self._numbers[revision] = self._latest
        if len(self._numbers) > MOST_REVISIONS:
            del self._numbers[next(iter(self._numbers))]
        changed = {key for key, item in content.items() if self.content.get(key) != item}
        gone = self.content.keys() - content.keys()
        self._since.update(dict.fromkeys(changed, self._latest))
        for key in gone:
            self._since.pop(key, None)
        self.content = content
        self.revision = revision
        return changed | gone

    def recall(self, keys: set[Key]) -> set[Key]:
        """Record which objects an earlier leader's revision holds; return them. Their texts do not
        matter: all is told with the first revision of this leader."""
        if self.revision is not None:
            return set()
        self.content = dict.fromkeys(keys, "")
        return keys

    def revisions_with(self, key: Key) -> frozenset[str]:
        since = self._since.get(key, self._latest)
        return frozenset(name for name, number in self._numbers.items() if number >= since)


@dataclass(slots=True)
class ServiceState:
    evaluation: ServiceEvaluation
    evaluated: tuple[str, int]
    rollout: Rollout = field(default_factory=Rollout)
    #: The number of the latest change that it has seen (``ChangeLog``).
    seen: int = 0
    #: When time alone makes it wrong, in seconds since the epoch.
    valid_until: float = float("inf")
    packer: Packer = field(default_factory=Packer)
    #: A configuration, and its files.
    packed: tuple[Mapping[Key, str], Rendered] | None = None
    #: The schema level of the configuration, and the fields that it leaves out.
    level: int = LEVEL
    left_out: tuple[str, ...] = ()
    #: See ``DesiredState``.
    digest: str = ""
    #: When the latest revision was written (monotonic).
    rolled_out_at: float = float("-inf")
    #: Earliest next evaluation (monotonic).
    rests_until: float = float("-inf")
    #: Whether all writes of the evaluation are done.
    written: bool = False
    unwritten: Verdict | None = None
    rival: str = ""
    #: Since when writes fail (monotonic); None after a success.
    failing_since: float | None = None
    #: What the deliverers ran at the last notification (``DeliveryChanges``). None: notify in any
    #: case.
    running: frozenset[str | None] | None = None
    pending: set[Key] = field(default_factory=set)


def status_of(service: Key) -> Key:
    return Key(SERVICE_STATUS, service.namespace, service.name)


def spec_of(body: Object) -> tuple[str, int]:
    return body["metadata"]["uid"], body["metadata"]["generation"]


class ServiceStates(dict[Key, ServiceState]):
    """Without a service before its first reconcile and after its deletion."""

    def put(self, body: Object, evaluation: ServiceEvaluation) -> ServiceState:
        evaluated = spec_of(body)
        state = self.setdefault(key_of(body), ServiceState(evaluation, evaluated))
        state.evaluation, state.evaluated = evaluation, evaluated
        state.written = False
        return state
