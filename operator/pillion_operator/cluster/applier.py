"""Applies the objects of one IndicationService that differ from the desired ones; whether others
have changed one is the API server's answer to the apply. Each object carries a digest of its
desired state, which after a restart still shows removed fields, and tells changes by others from
changes of the desired state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api, ApiError, Conflict
from pillion_operator.cluster.differences import differences, digest, without_additions
from pillion_operator.cluster.ownership import Identity, adoptable, belongs, identity, selector
from pillion_operator.cluster.repairs import FORGOTTEN_AFTER, Repairs
from pillion_operator.cluster.types import (
    NETWORK_POLICY,
    SECRET,
    Object,
    annotations_of,
    being_deleted,
    labels_of,
    type_of,
)
from pillion_operator.names import APPLIED_ANNOTATION, INSTALLATION_ANNOTATION, SERVICE_LABEL

#: A new object is applied with this version, which no object ever has (etcd gives 1 to its empty
#: store), so an unknown existing one answers 409.
NEVER = "1"
ATTEMPTS = 3
MOST_FIELDS = 5
#: Seconds within which a watch shows a write.
ECHO = 60.0
#: The kinds that a service may need fewer of during its life. The garbage collector deletes all
#: others with the service.
PRUNED = frozenset((SECRET.kind, NETWORK_POLICY.kind))


class Refused(Exception):
    """An object cannot be applied, and a retry does not help. The text is for users."""

    def __init__(self, body: Object, message: str) -> None:
        super().__init__(f"{body['kind']} {body['metadata']['name']}: {message}")


class NotOurs(Refused):
    """An object of that name belongs to somebody else; it stays as it is."""


class Invalid(Refused): ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """An object that others changed or deleted was restored."""

    body: Object
    #: Some of the changed fields; empty if the object was gone.
    fields: tuple[str, ...]
    #: Consecutive repairs, including this one.
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    #: Without deletions.
    written: int = 0
    pruned: int = 0
    #: Objects that cannot be applied. If there are any, nothing is pruned.
    refused: tuple[Refused, ...] = ()
    #: Seconds until the next repair of a contested object; None: none waits.
    retry_after: float | None = None
    #: Another installation of the operator that recently overwrote objects; or empty.
    rival: str = ""
    #: Seconds until it is forgotten, unless it writes again; None: there is none.
    rival_for: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A write, and what the API server made of it."""

    digest: str
    uid: str
    version: str
    #: Monotonic.
    at: float
    #: The differences that the API server keeps; not written again.
    tolerated: Mapping[str, str]


@dataclass(slots=True)
class _Memory:
    uid: str
    made: dict[Identity, _Made] = field(default_factory=dict)
    repairs: dict[Identity, Repairs] = field(default_factory=dict)
    #: Deleted uids that the watch still shows.
    pruned: set[str] = field(default_factory=set)
    #: An installation that overwrote an object, and when that was found (monotonic).
    rival: str = ""
    rival_at: float = float("-inf")


class Applier:
    def __init__(
        self, api: Api, *, installation: str, clock: Clock, repaired: Callable[[Repair], None]
    ) -> None:
        """``installation`` identifies this one in the cluster; ``repaired`` is called for each
        repair of others' changes."""
        self._api = api
        self._installation = installation
        self._clock = clock
        self._repaired = repaired
        self._memories: dict[tuple[str, str], _Memory] = {}

    async def sync(
        self, owner: Object, *, desired: Sequence[Object], live: Iterable[Object]
    ) -> Applied:
        """Write the ``desired`` objects of ``owner`` that differ, and delete its others.

        ``live`` has all children of the owner, may lag, and may have more. Raises the errors of
        :class:`Api`; completed writes are not repeated.
        """
        memory = self._memory(owner)
        there = {identity(body): body for body in live}
        wanted = {identity(body): body for body in desired}
        for known in (memory.made, memory.repairs):
            for gone in known.keys() - wanted.keys():
                del known[gone]
        written, waits, refused = 0, list[float](), list[Refused]()
        for key, body in wanted.items():
            child = _Child(owner, memory, _stamped(body, self._installation))
            try:
                outcome = await self._bring(child, there.get(key))
            except Refused as error:
                refused.append(error)
                continue
            if isinstance(outcome, float):
                waits.append(outcome)
            else:
                written += outcome
        surplus = [body for key, body in there.items() if key not in wanted]
        pruned = 0 if refused else await self._prune(owner, memory, surplus)
        rival_for = memory.rival_at + FORGOTTEN_AFTER - self._clock.monotonic()
        return Applied(
            written=written,
            pruned=pruned,
            refused=tuple(refused),
            retry_after=min(waits, default=None),
            rival=memory.rival if rival_for > 0 else "",
            rival_for=rival_for if rival_for > 0 else None,
        )

    def wrote(self, body: Object) -> bool:
        """Whether an object equals this process's last write of it."""
        metadata = body["metadata"]
        service = labels_of(body).get(SERVICE_LABEL, "")
        memory = self._memories.get((metadata.get("namespace", ""), service))
        made = memory.made.get(identity(body)) if memory is not None else None
        return made is not None and made.version == metadata["resourceVersion"]

    def forget(self, namespace: str, service: str) -> None:
        self._memories.pop((namespace, service), None)

    def _memory(self, owner: Object) -> _Memory:
        metadata = owner["metadata"]
        place = (metadata["namespace"], metadata["name"])
        known = self._memories.get(place)
        if known is None or known.uid != metadata["uid"]:
            known = self._memories[place] = _Memory(metadata["uid"])
        return known

    async def _bring(self, child: "_Child", live: Object | None) -> bool | float:
        """Return whether it was written, or the seconds until it may be."""
        now = self._clock.monotonic()
        if live is None and child.made is not None:
            # The watch may not show a recent object yet.
            live = await self._look(child)
        child.check(live)
        # A watch that is behind may show the desired state although the object has changed since.
        behind = child.behind(live, now)
        lacking = child.lacking(live)
        settled = child.made is not None if behind else not lacking
        if settled:
            return False
        if behind or not child.made_before(live):
            return await self._write(child, live) is not None
        maker = annotations_of(live).get(INSTALLATION_ANNOTATION)
        if maker and maker != self._installation:
            child.memory.rival, child.memory.rival_at = maker, now
        repairs = child.memory.repairs.get(child.key, Repairs())
        wait = repairs.wait(now)
        if wait > 0:
            return wait
        result = await self._write(child, live)
        if result is None:
            return False
        repairs = child.memory.repairs[child.key] = repairs.repaired(now)
        fields = tuple(lacking[:MOST_FIELDS]) if live else ()
        self._repaired(Repair(body=result, fields=fields, times=repairs.times))
        return True

    async def _write(self, child: "_Child", live: Object | None) -> Object | None:
        """Apply, and remove others' additions, which apply leaves. Return the object; None if the
        API server had nothing to change."""
        result = await self._apply(child, live)
        kept = differences(child.body, result)
        patch = without_additions(child.body, result)
        if patch:
            metadata = result["metadata"]
            place = (type_of(result), metadata["namespace"], metadata["name"])
            uid = {"uid": metadata["uid"]}
            result = await self._api.patch(*place, {**patch, "metadata": uid})
            # What others write between the two requests is no difference that the API server keeps.
            kept = dict(kept.items() & differences(child.body, result).items())
        version = result["metadata"]["resourceVersion"]
        child.memory.made[child.key] = _Made(
            digest=child.digest,
            uid=result["metadata"]["uid"],
            version=version,
            at=self._clock.monotonic(),
            tolerated=kept,
        )
        changed = live is None or live["metadata"]["resourceVersion"] != version
        return result if changed else None

    async def _apply(self, child: "_Child", live: Object | None) -> Object:
        """Apply to exactly the object that was seen, or to none: never to somebody else's."""
        uid = _uid(live)
        attempt = 0
        while True:
            attempt += 1
            condition = {"resourceVersion": NEVER} if uid is None else {"uid": uid}
            metadata = {**child.body["metadata"], **condition}
            try:
                return await self._api.apply({**child.body, "metadata": metadata})
            except ApiError as error:
                # 422 also answers a changed uid.
                if error.status not in (409, 422):
                    raise
                found = await self._look(child)
                child.check(found)
                if error.status == 422 and _uid(found) == uid:
                    raise Invalid(child.body, _why(child.body, error)) from error
                # Twice: a conflict of the moment is no foreign object.
                if uid is None and found is None and attempt > 1:
                    raise child.not_ours() from None
                if attempt == ATTEMPTS:
                    raise
                # An object of this process may have lost its labels, and so left the watch.
                uid = _uid(found) or (child.last_uid if uid is None else None)

    async def _look(self, child: "_Child") -> Object | None:
        """Return the live object if it has our labels: no other Secret is ever read."""
        kind = type_of(child.body)
        labels = selector(child.owner)
        namespace = child.body["metadata"]["namespace"]
        for body in await self._api.list(kind, namespace, label_selector=labels):
            if body["metadata"]["name"] == child.body["metadata"]["name"]:
                # List items lack apiVersion and kind.
                return {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        return None

    async def _prune(self, owner: Object, memory: _Memory, surplus: Iterable[Object]) -> int:
        prunable = {
            body["metadata"]["uid"]: body
            for body in surplus
            if body["kind"] in PRUNED and belongs(body, owner) and not being_deleted(body)
        }
        memory.pruned &= prunable.keys()
        pruned = 0
        for uid, body in prunable.items():
            if uid in memory.pruned:
                continue
            metadata = body["metadata"]
            place = (type_of(body), metadata["namespace"], metadata["name"])
            try:
                await self._api.delete(*place, uid=uid)
            except Conflict:
                continue  # Another object has this name by now; the watch will show it.
            memory.pruned.add(uid)
            pruned += 1
        return pruned


class _Child:
    """One desired object, and what was last written under its name."""

    def __init__(self, owner: Object, memory: _Memory, body: Object) -> None:
        self.owner = owner
        self.memory = memory
        self.body = body
        self.key = identity(body)
        self.digest: str = body["metadata"]["annotations"][APPLIED_ANNOTATION]
        #: The last write, of any desired state.
        self.last = memory.made.get(self.key)
        self.last_uid = self.last.uid if self.last is not None else None
        #: The last write, if it was of this desired state.
        self.made = self.last if self.last and self.last.digest == self.digest else None

    def check(self, live: Object | None) -> None:
        """Raise NotOurs if ``live`` belongs to somebody else."""
        if live is not None and not (belongs(live, self.owner) or adoptable(live, self.owner)):
            raise self.not_ours()

    def not_ours(self) -> NotOurs:
        service = self.owner["metadata"]["name"]
        return NotOurs(
            self.body,
            f"there is one already that does not belong to IndicationService {service}, and it is "
            "left as it is: delete or rename it",
        )

    def lacking(self, live: Object | None) -> list[str]:
        """The paths of the fields to write; for an object that is not there one without name."""
        if live is None:
            return [""]
        tolerated = self.made.tolerated if self.made is not None else {}
        found = differences(self.body, live)
        return [path for path, there in found.items() if tolerated.get(path) != there]

    def behind(self, live: Object | None, now: float) -> bool:
        """Whether the watch has yet to show the last write; versions of a kind are ordered.
        Bounded, because a restored etcd has older versions."""
        last = self.last
        if live is None or last is None or now - last.at >= ECHO or _uid(live) != last.uid:
            return False
        return int(live["metadata"]["resourceVersion"]) < int(last.version)

    def made_before(self, live: Object | None) -> bool:
        """Whether it was as desired before, so somebody else has changed it."""
        return self.made is not None or annotations_of(live).get(APPLIED_ANNOTATION) == self.digest


def _stamped(body: Object, installation: str) -> Object:
    metadata = body["metadata"]
    annotations = {**annotations_of(body), INSTALLATION_ANNOTATION: installation}
    stamped = {**body, "metadata": {**metadata, "annotations": annotations}}
    # The digest includes the installation: another one's objects are taken over, not repaired.
    annotations[APPLIED_ANNOTATION] = digest(stamped)
    return stamped


def _uid(body: Object | None) -> str | None:
    return None if body is None else body["metadata"]["uid"]


def _why(body: Object, error: ApiError) -> str:
    if body["kind"] == SECRET.kind:
        # The API server's text may quote the refused value.
        return "the API server refuses it; delete the Secret, it is made anew"
    return f"the API server refuses it: {error.message}"
