"""The last known state of every watched object. The watches fill it and the resync repairs it.
Objects are the API server's JSON without the unused parts."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pillion_operator.cluster.scaling import scale_entries
from pillion_operator.cluster.types import STATEFUL_SET, Object, container_state, labels_of
from pillion_operator.names import CONTAINER, DATA_VOLUME, RENDERED
from pillion_sidecar.config.schema import CREDENTIALS_LABEL, GROUP

#: Maximum remembered deletions: more than may happen during a request.
MOST_GONE = 10_000
#: Maximum characters of data (base64) kept of a Secret or ConfigMap: twice a bundle of all public
#: authorities. Of a larger one only the existence is known.
MOST_SECRET = 512 * 1024
#: The metadata that identifies an object among others of its name.
IDENTITY = ("uid", "creationTimestamp")
#: In the metadata of an object that continues another: the other's ``IDENTITY``. Never from the API
#: server, which drops unknown metadata.
CONTINUES = "continues"
#: Maximum characters kept of why a container waits.
LONGEST_WAITING = 300


class Key(NamedTuple):
    """A tuple, because those of a large service are hashed and sorted by the ten thousand."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def key_of(body: Object) -> Key:
    """The namespace is ``""`` for an object without one."""
    metadata = body["metadata"]
    return Key(body["kind"], metadata.get("namespace") or "", metadata["name"])


def version_of(body: Object) -> int:
    """As a number, which grows with each change of the cluster."""
    return int(body["metadata"].get("resourceVersion") or 0)


def uid_of(body: Object) -> str:
    return str(body["metadata"].get("uid") or "")


def identity_of(body: Object) -> dict[str, Any]:
    """The uid and creationTimestamp by which a deliverer identifies the object: those of the first
    one if it continues others."""
    metadata = body["metadata"]
    own = {name: metadata[name] for name in IDENTITY if name in metadata}
    return dict(metadata.get(CONTINUES) or own)


@dataclass(frozen=True, slots=True)
class Change:
    """``before`` or ``after`` is None if there was none."""

    key: Key
    before: Object | None
    after: Object | None


#: Called after each change of the store.
Listener = Callable[[Change], None]


class Store:
    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], dict[str, Object]] = {}
        #: Keys that the watches have changed since ``begin_listing``.
        self._touched: set[Key] | None = None
        self._listeners: list[Listener] = []
        #: Whether an object that replaces another continues it.
        self.takes_up: Callable[[Key], bool] = lambda _key: False
        #: The versions of recent deletions, by uid.
        self._gone: OrderedDict[str, int] = OrderedDict()

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def put(self, body: Object, *, older_too: bool = False) -> bool:
        """Store an object from a watch, an answer or a listing; return whether it was new. A watch
        that was cut may repeat older states, and a restored etcd lists older versions."""
        key = key_of(body)
        self._touch(key)
        if version_of(body) <= self._gone.get(uid_of(body), -1):
            # The answer to a write may come after the watch has reported the deletion.
            return False
        before = self.get(key)
        same = before is not None and uid_of(before) == uid_of(body)
        if before is not None:
            ahead = version_of(body) - version_of(before)
            if (ahead == 0 and same) or (ahead < 0 and not older_too):
                return False
        slim = slimmed(body)
        if before is not None and (CONTINUES in before["metadata"] if same else self.takes_up(key)):
            slim = _continuing(slim, identity_of(before))
        self._objects.setdefault((key.kind, key.namespace), {})[key.name] = slim
        self._tell(Change(key, before, slim))
        return True

    def continues(self, key: Key, identity: Mapping[str, Any]) -> None:
        """Let an existing object continue an earlier one, unless it continues another."""
        known = self._objects[(key.kind, key.namespace)]
        if CONTINUES not in known[key.name]["metadata"]:
            known[key.name] = _continuing(known[key.name], identity)

    def remove(self, key: Key, *, version: int | None = None) -> bool:
        """Remove an object, unless it is newer than ``version``."""
        self._touch(key)
        known = self._objects.get((key.kind, key.namespace), {})
        before = known.get(key.name)
        if before is None or (version is not None and version_of(before) > version):
            return False
        del known[key.name]
        if not known:
            del self._objects[(key.kind, key.namespace)]
        self._gone[uid_of(before)] = max(version_of(before), version or 0)
        if len(self._gone) > MOST_GONE:
            self._gone.popitem(last=False)
        self._tell(Change(key, before, None))
        return True

    def begin_listing(self) -> None:
        """Mark the start of a listing: what the watches bring from now on is newer."""
        self._touched = set()

    def reconcile_listing(
        self,
        kind: str,
        namespaces: Iterable[str] | None,
        listed: Iterable[Object],
        *,
        kept: Callable[[Key], bool] = lambda _key: False,
    ) -> list[Key]:
        """Repair one kind by a complete listing; return what differed.

        ``namespaces`` are those that were listed, None for all. Changes by a watch since
        ``begin_listing`` are left alone; ``kept`` objects that are not listed stay, but are
        returned.
        """
        touched = self._touched or set()
        self._touched = None
        wrong = []
        present = set()
        for body in listed:
            key = key_of(body)
            present.add(key)
            if key not in touched and self.put(body, older_too=True):
                wrong.append(key)
        for key in list(self.keys(kind)):
            within = namespaces is None or key.namespace in namespaces
            gone = within and key not in present and key not in touched
            if gone and (kept(key) or self.remove(key)):
                wrong.append(key)
        return wrong

    def copied(self, namespace: str) -> "Store":
        """One namespace as it is now, for another thread: objects are replaced, never changed."""
        copy = Store()
        copy._objects = {
            place: dict(objects)
            for place, objects in self._objects.items()
            if place[1] == namespace
        }
        return copy

    def _touch(self, key: Key) -> None:
        if self._touched is not None:
            self._touched.add(key)

    def _tell(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)

    def get(self, key: Key) -> Object | None:
        return self._objects.get((key.kind, key.namespace), {}).get(key.name)

    def all(self, kind: str, namespace: str) -> Mapping[str, Object]:
        return self._objects.get((kind, namespace), {})

    def keys(self, kind: str) -> Iterator[Key]:
        for (known, namespace), objects in self._objects.items():
            if known == kind:
                for name in objects:
                    yield Key(kind, namespace, name)

    def namespaces(self, kind: str) -> list[str]:
        return [namespace for known, namespace in self._objects if known == kind]


def _continuing(body: Object, identity: Mapping[str, Any]) -> Object:
    return {**body, "metadata": {**body["metadata"], CONTINUES: dict(identity)}}


def _is_oversized(secret: Object) -> bool:
    size = sum(len(value) for value in (secret.get("data") or {}).values())
    return labels_of(secret).get(CREDENTIALS_LABEL) != RENDERED and size > MOST_SECRET


def slimmed(body: Object) -> Object:
    """Remove what costs memory and nobody reads."""
    metadata = {k: v for k, v in body["metadata"].items() if k != "managedFields"}
    if "annotations" in metadata:
        # Others write anything there, kubectl a copy of the whole object.
        metadata["annotations"] = {
            name: value
            for name, value in metadata["annotations"].items()
            if name.startswith(f"{GROUP}/")
        }
    if body["kind"] == STATEFUL_SET.kind and (scaled := scale_entries(body["metadata"])):
        metadata["managedFields"] = scaled
    slim: dict[str, Any] = {**body, "metadata": metadata}
    if body["kind"] in ("Secret", "ConfigMap") and _is_oversized(body):
        slim["data"] = None
    slim.pop("binaryData", None)
    if body["kind"] == "Pod":
        status = body.get("status") or {}
        slim["spec"] = _account(body) | _claimed(body)
        slim["status"] = {
            name: status[name]
            for name in ("phase", "podIP", "conditions", "reason")
            if name in status
        } | _state_of_deliverer(body)
    return slim


def _account(pod: Object) -> dict[str, Any]:
    name = (pod.get("spec") or {}).get("serviceAccountName")
    return {} if name is None else {"serviceAccountName": sys.intern(str(name))}


def _claimed(pod: Object) -> dict[str, Any]:
    """Whether the deliverer's journal is in a claim, which outlives the pod."""
    volumes = [
        volume
        for volume in (pod.get("spec") or {}).get("volumes") or ()
        if volume.get("name") == DATA_VOLUME and "persistentVolumeClaim" in volume
    ]
    return {"volumes": volumes} if volumes else {}


def _state_of_deliverer(pod: Object) -> dict[str, Any]:
    """How the deliverer has ended, or why it waits."""
    state = container_state(pod, CONTAINER)
    if "terminated" in state:
        kept = {"terminated": state["terminated"]}
    elif "waiting" in state:
        texts = (_waiting_plugin(pod) or state["waiting"]).items()
        kept = {"waiting": {name: str(value)[:LONGEST_WAITING] for name, value in texts}}
    else:
        return {}
    return {"containerStatuses": [{"name": CONTAINER, "state": kept}]}


def _waiting_plugin(pod: Object) -> Object:
    """Why a plug-in keeps the deliverer waiting; empty: none does."""
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing"):
            message = f"container {status['name']}: {waiting.get('message', '')}"
            return {"reason": waiting["reason"], "message": message}
    return {}
