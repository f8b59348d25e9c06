"""What the reconciles remember of each service from run to run; it can be worked out anew."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.service import LeftOut, ServiceEvaluation
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.store import Key, key_of
from pillion_sidecar.config.levels import LEVEL

#: The kind of key under which the status of a service alone is reconciled.
SERVICE_STATUS = "IndicationService/status"
#: Revisions that are remembered. A deliverer on an older one is behind, whatever it holds.
MOST_REVISIONS = 200


class Rollout:
    """The revisions of one service since this process has begun to render them."""

    def __init__(self) -> None:
        self.revision: str | None = None
        self._content: Mapping[Key, str] = {}
        #: The number of the revision that first held the object's present state.
        self._since: dict[Key, int] = {}
        self._numbers: dict[str, int] = {}
        self._latest = 0

    def advance(self, revision: str, content: Mapping[Key, str]) -> set[Key]:
        """A revision was rendered; return the objects that it adds, changes or leaves out."""
        if revision == self.revision:
            return set()
        self._latest += 1
        self._numbers.pop(revision, None)
        self._numbers[revision] = self._latest
        if len(self._numbers) > MOST_REVISIONS:
            del self._numbers[next(iter(self._numbers))]
        changed = {key for key, item in content.items() if self._content.get(key) != item}
        gone = set(self._content) - set(content)
        self._since.update(dict.fromkeys(changed, self._latest))
        for key in gone:
            del self._since[key]
        self._content = content
        self.revision = revision
        return changed | gone

    def holds(self, key: Key, item: str) -> bool:
        """Whether the latest revision holds the object in just this state."""
        return self._content.get(key) == item

    def __contains__(self, key: Key) -> bool:
        return key in self._content

    def revisions_with(self, key: Key) -> frozenset[str]:
        """The revisions that hold the object's present state."""
        since = self._since.get(key, self._latest)
        return frozenset(name for name, number in self._numbers.items() if number >= since)

    @property
    def keys(self) -> frozenset[Key]:
        """Everything that the latest revision holds."""
        return frozenset(self._content)


@dataclass(slots=True)
class ServiceState:
    evaluation: ServiceEvaluation
    #: The uid and the generation of the service that was evaluated.
    evaluated: tuple[str, int]
    rollout: Rollout = field(default_factory=Rollout)
    #: The level of the schema that the configuration is written in, and what that leaves out.
    level: int = LEVEL
    left_out: tuple[LeftOut, ...] = ()
    #: Of what deliverers go by beside the configuration, as it was written last (``Desired``).
    mark: str = ""
    #: When the latest revision was written, on the monotonic clock.
    rolled_out_at: float = float("-inf")
    #: It is not evaluated again before then, on the monotonic clock.
    rests_until: float = float("-inf")
    #: Whether everything is written that the evaluation asks for.
    written: bool = False
    #: Why the present configuration could not be written; None where it was.
    unwritten: Verdict | None = None
    #: Another installation of the operator that overwrites its objects; empty: none.
    rival: str = ""
    #: Since when writing it fails, on the monotonic clock; None where the last attempt did not.
    failing_since: float | None = None
    #: What the deliverers ran on when the objects were last told of it (``DeliveryNews``).
    #: None: they have to be told in any case.
    running: frozenset[str | None] | None = None
    #: Objects whose present state is not in force everywhere yet.
    pending: set[Key] = field(default_factory=set)


def status_of(service: Key) -> Key:
    """The key under which a service's status is reconciled."""
    return Key(SERVICE_STATUS, service.namespace, service.name)


def spec_of(body: Object) -> tuple[str, int]:
    """What tells one spec of a service from all others: uid and generation."""
    return body["metadata"]["uid"], body["metadata"]["generation"]


class ServiceStates:
    def __init__(self) -> None:
        self._states: dict[Key, ServiceState] = {}

    def get(self, service: Key) -> ServiceState | None:
        """A service that has been reconciled; None before that, and for one that is gone."""
        return self._states.get(service)

    def put(self, body: Object, evaluation: ServiceEvaluation) -> ServiceState:
        """Take over what a service, as ``body`` has it, has been evaluated to."""
        service, evaluated = key_of(body), spec_of(body)
        state = self._states.get(service)
        if state is None:
            state = self._states[service] = ServiceState(evaluation, evaluated)
        state.evaluation, state.evaluated = evaluation, evaluated
        state.written = False
        return state

    def forget(self, service: Key) -> ServiceState | None:
        return self._states.pop(service, None)
