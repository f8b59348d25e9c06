"""Applies the objects of one IndicationService, and writes only what differs. Each object carries a
digest of its desired state, which after a restart still shows removed fields, and tells changes by
others from changes of the desired state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api, ApiError, Conflict
from pillion_operator.cluster.differences import Difference, differences, digest, without_surplus
from pillion_operator.cluster.ownership import Identity, adoptable, belongs, identity, selector
from pillion_operator.cluster.repairs import FORGOTTEN_AFTER, Repairs
from pillion_operator.cluster.types import NETWORK_POLICY, SECRET, Object, type_of
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
        metadata = body["metadata"]
        super().__init__(f"{body['kind']} {metadata['name']}: {message}")
        self.kind: str = body["kind"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]


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
    digest: str
    uid: str
    #: The live object's resourceVersion after the write, and its (monotonic) time.
    version: str
    at: float
    #: The fields that the API server does not keep as desired; not written again.
    tolerated: frozenset[Difference]


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
        wanted = {identity(body) for body in desired}
        for gone in memory.made.keys() - wanted:
            del memory.made[gone]
        for gone in memory.repairs.keys() - wanted:
            del memory.repairs[gone]
        written, waits, refused = 0, list[float](), list[Refused]()
        for body in desired:
            pass_ = _Pass(owner, memory, _stamped(body, self._installation))
            try:
                outcome = await self._bring(pass_, there.get(identity(body)))
            except Refused as error:
                refused.append(error)
                continue
            if isinstance(outcome, float):
                waits.append(outcome)
            else:
                written += outcome
        pruned = 0 if refused else await self._prune(owner, memory, wanted, there)
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
        service = (metadata.get("labels") or {}).get(SERVICE_LABEL, "")
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

    def _is_behind(self, wanted: "_Pass", live: Object | None) -> bool:
        """Whether the watch has yet to show a write. Bounded, because a restored etcd has older
        versions."""
        last = wanted.last
        recent = last is not None and self._clock.monotonic() - last.at < ECHO
        return recent and wanted.behind(live)

    async def _bring(self, wanted: "_Pass", live: Object | None) -> bool | float:
        """Return whether it was written, or the seconds until it may be."""
        wanted.check(live)
        if self._is_behind(wanted, live):
            if wanted.made is not None:
                return False
            # The watch may show the desired state although the object has changed since.
            await self._write(wanted, live)
            return True
        if not wanted.lacking(live):
            return False
        if live is None and wanted.made is not None:
            # The watch may not show a recent object yet.
            live = await self._look(wanted)
            wanted.check(live)
            if not wanted.lacking(live):
                return False
        lacking = wanted.lacking(live)
        if not wanted.made_before(live):
            await self._write(wanted, live)
            return True
        repairs = wanted.memory.repairs.get(wanted.key, Repairs())
        now = self._clock.monotonic()
        maker = installation_of(live)
        if maker and maker != self._installation:
            wanted.memory.rival, wanted.memory.rival_at = maker, now
        wait = repairs.wait(now)
        if wait > 0:
            return wait
        repairs = repairs.repaired(now)
        try:
            result = await self._write(wanted, live)
        except Conflict:
            # A concurrent write counts as an attempt.
            wanted.memory.repairs[wanted.key] = repairs
            raise
        wanted.memory.repairs[wanted.key] = repairs
        self._repaired(
            Repair(
                body=result,
                fields=tuple(one.path for one in lacking[:MOST_FIELDS]) if live else (),
                times=repairs.times,
            )
        )
        return True

    async def _write(self, wanted: "_Pass", live: Object | None) -> Object:
        result = await self._applied_alone(wanted, live)
        wanted.memory.made[wanted.key] = _Made(
            digest=wanted.digest,
            uid=result["metadata"]["uid"],
            version=result["metadata"]["resourceVersion"],
            at=self._clock.monotonic(),
            tolerated=frozenset(differences(wanted.body, result)),
        )
        return result

    async def _applied_alone(self, wanted: "_Pass", live: Object | None) -> Object:
        """Apply, and remove others' additions, which apply leaves. A concurrent write restarts
        both, so any difference in the result is one that the API server does not keep."""
        for attempt in range(1, ATTEMPTS + 1):
            result = await self._apply(wanted, live)
            extra = without_surplus(wanted.body, result)
            if not extra:
                return result
            metadata = result["metadata"]
            seen = {name: metadata[name] for name in ("uid", "resourceVersion")}
            try:
                return await self._api.patch(
                    type_of(result),
                    metadata["namespace"],
                    metadata["name"],
                    {**extra, "metadata": seen},
                )
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
                live = await self._look(wanted)
                wanted.check(live)
        raise AssertionError("the last attempt returns or raises")

    async def _apply(self, wanted: "_Pass", live: Object | None) -> Object:
        """Apply to exactly the object that was seen, or to none: never to somebody else's."""
        uid, last = _uid(live), wanted.last_uid
        for attempt in range(1, ATTEMPTS + 1):
            condition = {"resourceVersion": NEVER} if uid is None else {"uid": uid}
            metadata = {**wanted.body["metadata"], **condition}
            try:
                return await self._api.apply({**wanted.body, "metadata": metadata})
            except ApiError as error:
                # 422 also answers a changed uid.
                if error.status not in (409, 422):
                    raise
                found = await self._look(wanted)
                wanted.check(found)
                if _uid(found) == uid:
                    if error.status == 422:
                        raise Invalid(wanted.body, _why(wanted.body, error)) from error
                    # Twice: a conflict of the moment is no foreign object.
                    if last is None and attempt > 1:
                        raise wanted.not_ours() from None
                if attempt == ATTEMPTS:
                    raise
                # An object of this process may have lost its labels, and so left the watch.
                uid, last = _uid(found) or (last if uid is None else None), None
        raise AssertionError("the last attempt returns or raises")

    async def _look(self, wanted: "_Pass") -> Object | None:
        """Return the live object if it has our labels: no other Secret is ever read."""
        kind = type_of(wanted.body)
        labels = selector(wanted.owner)
        namespace = wanted.body["metadata"]["namespace"]
        for body in await self._api.list(kind, namespace, label_selector=labels):
            if body["metadata"]["name"] == wanted.body["metadata"]["name"]:
                # List items lack apiVersion and kind.
                return {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        return None

    async def _prune(
        self,
        owner: Object,
        memory: _Memory,
        wanted: set[Identity],
        there: Mapping[Identity, Object],
    ) -> int:
        surplus_objects = [
            body
            for key, body in there.items()
            if key not in wanted
            and body["kind"] in PRUNED
            and belongs(body, owner)
            and body["metadata"].get("deletionTimestamp") is None
        ]
        memory.pruned &= {body["metadata"]["uid"] for body in surplus_objects}
        pruned = 0
        for body in surplus_objects:
            metadata = body["metadata"]
            if metadata["uid"] in memory.pruned:
                continue
            try:
                await self._api.delete(
                    type_of(body), metadata["namespace"], metadata["name"], uid=metadata["uid"]
                )
            except Conflict:
                continue  # Another object has this name by now; the watch will show it.
            memory.pruned.add(metadata["uid"])
            pruned += 1
        return pruned


class _Pass:
    def __init__(self, owner: Object, memory: _Memory, body: Object) -> None:
        self.owner = owner
        self.memory = memory
        self.body = body
        self.key = identity(body)
        self.digest: str = body["metadata"]["annotations"][APPLIED_ANNOTATION]
        made = memory.made.get(self.key)
        #: The last write under that name, of any desired state.
        self.last = made
        self.last_uid = made.uid if made is not None else None
        self.made = made if made is not None and made.digest == self.digest else None

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

    def lacking(self, live: Object | None) -> tuple[Difference, ...]:
        if live is None:
            return (Difference("", ""),)
        tolerated = self.made.tolerated if self.made is not None else frozenset()
        return tuple(one for one in differences(self.body, live) if one not in tolerated)

    def behind(self, live: Object | None) -> bool:
        """Whether the watch lags behind the last write; versions of a kind are ordered."""
        if live is None or self.last is None or _uid(live) != self.last.uid:
            return False
        return int(live["metadata"]["resourceVersion"]) < int(self.last.version)

    def made_before(self, live: Object | None) -> bool:
        """Whether it was as desired before, so somebody else has changed it."""
        annotations = (live or {}).get("metadata", {}).get("annotations") or {}
        return self.made is not None or annotations.get(APPLIED_ANNOTATION) == self.digest


def _stamped(body: Object, installation: str) -> Object:
    made = _annotated(body, INSTALLATION_ANNOTATION, installation)
    # The digest includes the installation: another one's objects are taken over, not repaired.
    return _annotated(made, APPLIED_ANNOTATION, digest(made))


def _annotated(body: Object, name: str, value: str) -> Object:
    metadata: dict[str, Any] = dict(body["metadata"])
    annotations = {**(metadata.get("annotations") or {}), name: value}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def installation_of(body: Object | None) -> str:
    annotations = (body or {}).get("metadata", {}).get("annotations") or {}
    return str(annotations.get(INSTALLATION_ANNOTATION, ""))


def _uid(body: Object | None) -> str | None:
    return None if body is None else body["metadata"]["uid"]


def _why(body: Object, error: ApiError) -> str:
    if body["kind"] == "Secret":
        # The API server's text may quote the refused value.
        return "the API server refuses it; delete the Secret, it is made anew"
    return f"the API server refuses it: {error.message}"
