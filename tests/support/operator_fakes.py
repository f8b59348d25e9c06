"""A cluster in memory for the operator: an API server with watches, pods with deliverers, and an
event loop whose time passes only when there is nothing else to do.
"""

import asyncio
import base64
import json
import random
import re
import selectors
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar, TypeVarTuple

from pillion_operator.cluster.api import ApiError, Conflict, NotFound
from pillion_operator.cluster.issuer import CONFIGURATION_PATH, KEYS_PATH
from pillion_operator.cluster.types import Object, ResourceType, type_of
from pillion_operator.names import CONFIGURATION_PARTS, OPERATOR_TOKEN, configuration_secret
from pillion_operator.polling.reports import (
    Answer,
    DelivererReport,
    DeliveryResult,
    QueueReport,
    ReplayReport,
    Unreachable,
)
from pillion_operator.status.conditions import rfc3339
from pillion_operator.store import Key, key_of
from pillion_operator.watching import WATCHED
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.rendered import items, unpack
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.wire.queues import SubscriptionEnd

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: When the virtual clock begins, in seconds since the epoch.
EPOCH = 1_700_000_000.0


# ---------------------------------------------------------------------------- time


class _Skipping(selectors.DefaultSelector):
    """Never waits: says instead how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everybody waits for somebody else"
        # Work takes its time as well, or a wait too short for a float to hold would never end.
        self.waited += max(1e-6, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as nothing else can go on."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return 1000.0 + self._skipping.waited

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Do a thread's work here, a moment later: it sees what happens until then, and no race."""
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
                done.set_exception(error)

        self.call_later(0.02, work)
        return done


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end, on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class LoopClock:
    """The operator's clock, by the time of the event loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def time(self) -> float:
        return EPOCH + self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


# ---------------------------------------------------------------------------- the API server

_SELECTORS = {kind.kind: selector for kind, selector in WATCHED}

#: Gets an event's type and the object.
OnEvent = Callable[[str, Object], None]


def selected(body: Object, selector: str | None) -> bool:
    """Whether a label selector of equalities, sets and names of labels selects an object."""
    labels = body["metadata"].get("labels") or {}
    for term in re.split(r",(?![^(]*\))", selector) if selector else ():
        name, equals, value = term.partition("=")
        name, among, values = name.partition(" in ")
        if name not in labels:
            return False
        if among and labels[name] not in values.strip("()").split(","):
            return False
        if equals and labels[name] != value:
            return False
    return True


@dataclass
class FakeApi:
    """What ``Api`` is to the operator. ``draw`` makes latencies, failures and late watches; without
    it everything is done at once, and watches tell at once."""

    draw: random.Random | None = None
    #: The share of requests that fail, half of them after they were carried out.
    failing: float = 0.0
    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    #: Every write: its verb, the object's key, and what was written.
    writes: list[tuple[str, Key, Any]] = field(default_factory=list)
    watchers: list[OnEvent] = field(default_factory=list)
    #: Raised by requests as long as they say so: gets the verb and the key.
    refuse: Callable[[str, Key], ApiError | None] = lambda _verb, _key: None
    #: What the API server says of the tokens that it issues, by path.
    documents: dict[str, Any] = field(
        default_factory=lambda: {
            CONFIGURATION_PATH: {"issuer": "https://kubernetes.default.svc"},
            KEYS_PATH: {"keys": [{"kty": "RSA", "kid": "one", "n": "AQAB", "e": "AQAB"}]},
        }
    )
    _version: int = 100
    _uids: int = 0
    _told_until: float = 0.0

    # what the operator calls

    async def get(self, kind: ResourceType, namespace: str | None, name: str) -> Object | None:
        await self._before("get", Key(kind.kind, namespace or "", name))
        return deepcopy(self.objects.get(Key(kind.kind, namespace or "", name)))

    async def list(
        self, kind: ResourceType, namespace: str | None = None, *, label_selector: str | None = None
    ) -> list[Object]:
        await self._before("list", Key(kind.kind, namespace or "", ""))
        found: list[Object] = [
            {name: value for name, value in body.items() if name not in ("kind", "apiVersion")}
            for key, body in sorted(self.objects.items())
            if key.kind == kind.kind
            and namespace in (None, key.namespace)
            and selected(body, label_selector)
        ]
        answer = deepcopy(found)
        await self._after()
        return answer

    async def document(self, path: str) -> bytes:
        await self._before("read", Key("document", "", path))
        return json.dumps(self.documents[path]).encode()

    async def apply(self, body: Object) -> Object:
        key = key_of(body)
        await self._before("apply", key)
        there = self.objects.get(key)
        wanted = body["metadata"]
        if there is None and wanted.get("uid"):
            raise Conflict(409, "Conflict", "there is none of that uid")
        if there is not None:
            if wanted.get("uid") not in (None, there["metadata"]["uid"]):
                raise Conflict(409, "Conflict", "it has another uid")
            if wanted.get("resourceVersion") not in (None, there["metadata"]["resourceVersion"]):
                raise Conflict(409, "Conflict", "it has changed")
        made = deepcopy(dict(body))
        made["metadata"].pop("resourceVersion", None)
        return await self._written("apply", self.put(made), body)

    async def patch(
        self,
        kind: ResourceType,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
    ) -> Object:
        key = Key(kind.kind, namespace or "", name)
        await self._before(f"patch {subresource}".strip(), key)
        there = self.objects.get(key)
        if there is None:
            raise NotFound(404, "NotFound", str(key))
        assert isinstance(body, Mapping)
        metadata = body.get("metadata") or {}
        for name_ in ("uid", "resourceVersion"):
            if metadata.get(name_) not in (None, there["metadata"].get(name_)):
                raise Conflict(409, "Conflict", f"{name_} is another")
        made = deepcopy(there)
        _merge(made, {"status": body.get("status")} if subresource == "status" else body)
        return await self._written(f"patch {subresource}".strip(), self.put(made), body)

    async def create(
        self, body: Object, *, namespace: str | None = None, path: str | None = None
    ) -> Object:
        key = key_of(body)
        await self._before("create", key)
        if key in self.objects:
            raise Conflict(409, "AlreadyExists", str(key))
        return await self._written("create", self.put(body), body)

    async def replace(self, body: Object) -> Object:
        key = key_of(body)
        await self._before("replace", key)
        there = self.objects.get(key)
        if there is None:
            raise NotFound(404, "NotFound", str(key))
        if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "it has changed")
        return await self._written("replace", self.put(body), body)

    async def delete(
        self, kind: ResourceType, namespace: str | None, name: str, *, uid: str | None = None
    ) -> None:
        key = Key(kind.kind, namespace or "", name)
        await self._before("delete", key)
        if uid is not None and key in self.objects and self.objects[key]["metadata"]["uid"] != uid:
            raise Conflict(409, "Conflict", "it has another uid")
        self.remove(key)
        self.writes.append(("delete", key, None))
        await self._after()

    # what users and the cluster do

    def put(self, body: Object) -> Object:
        """Make or replace an object, as the API server does: versions, generation, uid."""
        key = key_of(body)
        before = self.objects.get(key)
        made: dict[str, Any] = deepcopy(dict(body))
        metadata = made["metadata"]
        if before is None:
            self._uids += 1
            metadata.update(uid=f"uid-{self._uids}", generation=1)
            metadata.setdefault("creationTimestamp", rfc3339(self._now()))
            made.pop("status", None)
        else:
            old = before["metadata"]
            for name in ("uid", "creationTimestamp", "generation", "deletionTimestamp"):
                if name in old:
                    metadata[name] = old[name]
            made.setdefault("status", before.get("status") or {})
            if made.get("spec") != before.get("spec"):
                metadata["generation"] = old["generation"] + 1
            metadata.setdefault("resourceVersion", old["resourceVersion"])
            if made == before:
                return deepcopy(before)
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self._forget(key)
            return made
        self._change(key, made)
        return deepcopy(made)

    def remove(self, key: Key) -> None:
        """Delete an object: at once, or once its finalizers are gone."""
        body = self.objects.get(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return
        if body["metadata"].get("finalizers"):
            made = deepcopy(body)
            made["metadata"]["deletionTimestamp"] = rfc3339(self._now())
            made["metadata"]["generation"] += 1
            self._change(key, made)
        else:
            self._forget(key)

    def all(self, kind: str) -> Iterator[dict[str, Any]]:
        """The objects of a kind, by namespace and name."""
        for key in sorted(self.objects):
            if key.kind == kind:
                yield self.objects[key]

    # inside

    def _now(self) -> float:
        try:
            return LoopClock().time()
        except RuntimeError:
            return EPOCH

    def _change(self, key: Key, made: dict[str, Any]) -> None:
        before = self.objects.get(key)
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = made
        if self.draw is not None and not self._owned(made):
            # The garbage collector finds what was made for an owner that is gone.
            asyncio.get_running_loop().call_later(1.0, self._collect, key)
        selector = _SELECTORS.get(key.kind, "-")
        if selected(made, selector):
            self._tell("MODIFIED" if before else "ADDED", made)
        elif before is not None and selected(before, selector):
            self._tell("DELETED", made)

    def _owned(self, body: Object) -> bool:
        owners = {one["uid"] for one in body["metadata"].get("ownerReferences") or ()}
        alive = {one["metadata"]["uid"] for one in self.objects.values()}
        return not owners or not owners.isdisjoint(alive)

    def _collect(self, key: Key) -> None:
        if key in self.objects and not self._owned(self.objects[key]):
            self.remove(key)

    def _forget(self, key: Key) -> None:
        self._version += 1
        body = self.objects.pop(key)
        body["metadata"]["resourceVersion"] = str(self._version)
        if selected(body, _SELECTORS.get(key.kind, "-")):
            self._tell("DELETED", body)
        uid = body["metadata"]["uid"]
        for owned, child in list(self.objects.items()):
            references = child["metadata"].get("ownerReferences") or ()
            if any(reference["uid"] == uid for reference in references):
                self.remove(owned)

    def _tell(self, event: str, body: Object) -> None:
        """To every watcher, in order, and later where ``draw`` says so."""
        told = deepcopy(body)
        if self.draw is None:
            for watcher in self.watchers:
                watcher(event, told)
            return
        loop = asyncio.get_running_loop()
        # Never two at one moment: the loop may call those in any order.
        self._told_until = max(self._told_until + 1e-6, loop.time() + self._latency())
        for watcher in self.watchers:
            loop.call_at(self._told_until, watcher, event, told)

    def _latency(self) -> float:
        if self.draw is None:
            return 0.0
        return self.draw.choice((0.0, 0.0, 0.001, 0.01, 0.04, 0.12, 0.4))

    async def _before(self, verb: str, key: Key) -> None:
        await asyncio.sleep(self._latency())
        refused = self.refuse(verb, key)
        if refused is not None:
            raise refused
        if self.draw is not None and self.draw.random() < self.failing / 2:
            raise ApiError(503, "ServiceUnavailable", "not now")

    async def _after(self) -> None:
        await asyncio.sleep(self._latency())
        if self.draw is not None and self.draw.random() < self.failing / 2:
            raise TimeoutError("no answer")

    async def _written(self, verb: str, answer: Object, body: Any) -> Object:
        self.writes.append((verb, key_of(answer), body))
        await self._after()
        return answer


def _merge(into: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, Mapping):
            inner = into.setdefault(name, {})
            _merge(inner, value)
        else:
            into[name] = value


# ---------------------------------------------------------------------------- deliverers


@dataclass
class FakeDeliverer:
    """What runs in one pod: loads what is rendered, and answers for it."""

    namespace: str
    service: str
    address: str
    #: It answers nothing.
    silent: bool = False
    #: It takes no other configuration.
    stuck: bool = False
    revision: str | None = None
    durability: Durability | None = None
    destinations: frozenset[str] = frozenset()
    #: Removed destinations that still hold something.
    draining: set[str] = field(default_factory=set)
    #: Destinations that hold something.
    backlog: dict[str, int] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    ended: tuple[SubscriptionEnd, ...] = ()
    #: The replays in its configuration, as rendered, and what it says of each; by uid.
    replays: dict[str, dict[str, Any]] = field(default_factory=dict)
    replayed: dict[str, ReplayReport] = field(default_factory=dict)
    #: Which fields it knows.
    schema_level: int = LEVEL
    #: What it runs on.
    text: str = ""
    #: Answers to what is asked besides queues: method, path and body.
    answers: Callable[[str, str, bytes | None], tuple[int, bytes]] = lambda *_: (404, b"")

    def load(self, api: FakeApi) -> None:
        """Take over what is rendered now, unless it is stuck, or nothing is complete."""
        if self.stuck:
            return
        found = unpack(_files(api, self.namespace, self.service))
        if found is None:
            return
        self.revision, self.text = found.revision, found.text
        before = self.destinations | self.draining
        self.destinations = frozenset(
            item["metadata"]["name"]
            for item in items(found.text)
            if item["kind"] == "ListenerDestination"
        )
        self.draining = {name for name in before - self.destinations if self.backlog.get(name)}
        self.replays = {
            item["metadata"]["uid"]: item
            for item in items(found.text)
            if item["kind"] == "IndicationReplay"
        }

    def replaying(self) -> dict[str, ReplayReport]:
        """What it says of the replays that it knows."""
        return {
            item["metadata"]["name"]: self.replayed.get(uid)
            or ReplayReport(name=item["metadata"]["name"], uid=uid, state="Waiting")
            for uid, item in self.replays.items()
        }

    def queues(self) -> dict[str, QueueReport]:
        """What it says of its destination queues."""
        self.draining = {name for name in self.draining if self.backlog.get(name)}
        return {
            name: QueueReport(
                name=name,
                depth=self.backlog.get(name, 0),
                capacity=100,
                high_water=self.backlog.get(name, 0),
                last_result=(
                    DeliveryResult.ERROR if name in self.failing else DeliveryResult.SUCCESS
                ),
                last_detail="refused" if name in self.failing else "",
                last_attempt_time=EPOCH,
                draining=name in self.draining,
            )
            for name in sorted(self.destinations | self.draining)
        }


def _files(api: FakeApi, namespace: str, service: str) -> dict[str, bytes]:
    files = {}
    for part in range(CONFIGURATION_PARTS):
        secret = api.objects.get(Key("Secret", namespace, configuration_secret(service, part)))
        for name, value in ((secret or {}).get("data") or {}).items():
            if name != OPERATOR_TOKEN:
                files[name] = base64.b64decode(value)
    return files


@dataclass
class FakeDeliverers:
    """Stands for the client that polls deliverers."""

    api: FakeApi
    draw: random.Random
    by_address: dict[str, FakeDeliverer] = field(default_factory=dict)
    #: The share of askings before which a deliverer looks for a new configuration.
    loading: float = 1.0
    asked: int = 0

    async def poll(self, pod: str, *, address: str, token: str) -> Answer:
        await asyncio.sleep(self.draw.choice((0.001, 0.02, 0.3)))
        self.asked += 1
        deliverer = self.by_address.get(address)
        at = LoopClock().time()
        if deliverer is None or deliverer.silent:
            return Unreachable(pod=pod, reason="timed out", since=at)
        if self.draw.random() < self.loading:
            deliverer.load(self.api)
        return DelivererReport(
            pod=pod,
            revision=deliverer.revision,
            durability=deliverer.durability,
            queues=deliverer.queues(),
            ended=deliverer.ended,
            replays=deliverer.replaying(),
            schema_level=deliverer.schema_level,
            at=at,
        )

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        address: str,
        token: str,
        seconds: float,
        most: int,
        body: bytes | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        deliverer = self.by_address.get(address)
        if deliverer is None or deliverer.silent:
            raise TimeoutError
        status, answer = deliverer.answers(method, path, body)
        return status, {}, answer


def canonical(value: Any) -> str:
    """JSON in which equal values are equal texts."""
    return json.dumps(value, sort_keys=True, indent=1)


__all__ = [
    "EPOCH",
    "FakeApi",
    "FakeDeliverer",
    "FakeDeliverers",
    "LoopClock",
    "VirtualLoop",
    "canonical",
    "run_virtually",
    "selected",
    "type_of",
]
