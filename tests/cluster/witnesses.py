"""Who can say afterwards what was lost on a bad day: publishers know what they were told, listeners
what they took. Both are asked at their pods' addresses, so an API server is not needed."""

import json
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.story import RESTRICTED_CONTAINER, RESTRICTED_POD, CloudEventsListener
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support import told_publisher

JSON = dict[str, Any]
#: Seconds for an answer of a pod; backstops, like those that tests give themselves.
ANSWER = 60.0
WITHIN = 120.0
LISTENER_PORT = 8080
#: Properties that a repeat by another deliverer has of its own.
OWN = ("IndicationTime", "IndicationFilterName", "SequenceContext", "SequenceNumber")
#: The listener's own bound of one answer.
MOST_AT_ONCE = 10_000
TOKEN, CA = "/var/run/secrets/pillion/token", "/etc/pillion-gateway/ca.crt"


def ask(url: str, *, body: bytes | None = None) -> bytes:
    """What a pod answers; with ``body`` to a POST."""
    with urllib.request.urlopen(url, data=body, timeout=ANSWER) as answer:
        found: bytes = answer.read()
    return found


@dataclass(slots=True, kw_only=True)
class ToldPublisher:
    """A pod with ``support.told_publisher``."""

    name: str
    address: str
    #: It publishes straight to a gateway.
    straight: bool = False
    _told: dict[str, list[str]] = field(default_factory=dict)
    _read: int = 0

    def told(self) -> Mapping[str, list[str]]:
        """The identifiers of which it was told that they had reached a level, by level, in order;
        once it has gone, those that were known before."""
        answer = json.loads(ask(f"{self._url}/told?after={self._read}"))
        for level, identifier in answer["told"]:
            self._told.setdefault(level, []).append(identifier)
        self._read += len(answer["told"])
        return self._told

    def known(self) -> set[str]:
        """All identifiers of which it was told something, as far as it was asked."""
        return {identifier for told in self._told.values() for identifier in told}

    def until_told_more(self, *levels: str, count: int = 10) -> None:
        """Wait until it was told so many more of each level."""
        wanted = {level: len(self.told().get(level, ())) + count for level in levels}
        before = Counter(self.otherwise())
        try:
            wait_until(
                lambda: all(len(self.told().get(level, ())) >= wanted[level] for level in levels),
                within=WITHIN,
                what=f"{self.name} is told {count} more of {' and '.join(levels)}",
            )
        except TimeoutError as error:
            instead = dict(Counter(self.otherwise()) - before)
            raise TimeoutError(f"{error}; instead it was told {instead}") from None

    def burst(self, count: int, *, event: str) -> set[str]:
        """Publish so many at once, until they are durable; returns their identifiers."""
        self.told()
        before = self.known()
        ask(
            f"{self._url}/burst?{urllib.parse.urlencode({'count': count, 'event': event})}",
            body=b"",
        )
        self.told()
        return {one for one in self.known() - before if ".burst" in one}

    def hold(self) -> None:
        """Publish no more; returns once nothing is under way and all that was told is known."""
        ask(f"{self._url}/pace?seconds=0", body=b"")
        self.told()

    def otherwise(self) -> Mapping[str, int]:
        """How often it was told something else, by what: a refusal, or no answer."""
        found: Mapping[str, int] = json.loads(ask(f"{self._url}/told?after={self._read}"))[
            "otherwise"
        ]
        return found

    @property
    def _url(self) -> str:
        return f"http://{self.address}:{told_publisher.PORT}"


def publisher_pod(
    name: str,
    *,
    image: str,
    service: str = "default",
    gateway: str | None = None,
    node: str | None = None,
) -> JSON:
    """A pod that publishes to its sidecar of ``service``, or straight to ``gateway``."""
    arguments = [name, "http://127.0.0.1:8288"]
    labels = {"app": name, "pillion.dev/inject": service}
    volumes: list[JSON] = []
    if gateway is not None:
        arguments = [name, f"https://pillion-{gateway}:8288", TOKEN, CA]
        labels = {"app": name}
        token = {"audience": "pillion", "expirationSeconds": 3600, "path": "token"}
        volumes = [
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
            {"name": "ca", "configMap": {"name": f"pillion-{gateway}"}},
        ]
    container = {
        "name": "publisher",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", Path(told_publisher.__file__).read_text()],
        "args": arguments,
        "securityContext": RESTRICTED_CONTAINER,
        "readinessProbe": {
            "httpGet": {"path": "/told?after=999999999", "port": told_publisher.PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
        "volumeMounts": [
            {"name": volume["name"], "mountPath": str(Path(path).parent)}
            for volume, path in zip(volumes, (TOKEN, CA), strict=False)
        ],
    }
    spec: JSON = {
        "securityContext": RESTRICTED_POD,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": volumes,
    }
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def publishing(kubectl: Kubectl, *pods: JSON) -> list[ToldPublisher]:
    """Make publishers' pods, and wait until they are ready."""
    kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)}))
    names = [pod["metadata"]["name"] for pod in pods]
    kubectl.wait(*(f"pod/{name}" for name in names), "--for=condition=Ready", within=120)
    return [
        ToldPublisher(
            name=pod["metadata"]["name"],
            address=kubectl.json("get", "pod", pod["metadata"]["name"])["status"]["podIP"],
            straight="pillion.dev/inject" not in pod["metadata"]["labels"],
        )
        for pod in pods
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An indication as a listener took it."""

    identifier: str
    path: str
    context: str | None
    number: int | None
    verdict: str
    properties: JSON


@dataclass(slots=True, kw_only=True)
class Witness:
    """A ``pillion listen`` pod that remembers all that it took."""

    kubectl: Kubectl
    name: str
    _address: str = ""
    _taken: list[Taken] = field(default_factory=list)
    _read: int = 0

    def deploy(self, image: str) -> None:
        """Run it, and wait until it listens."""
        listener = CloudEventsListener(kubectl=self.kubectl, name=self.name, port=LISTENER_PORT)
        listener.deploy(image, "--keep", "1000000")
        (pod,) = self.kubectl.json("get", "pods", f"--selector=app={self.name}")["items"]
        self._address = pod["status"]["podIP"]

    def go_down(self) -> None:
        """Have nothing listen behind its Service, and no connection left."""
        self._lead_to(9)
        # Connections that are open end with this answer, which no client takes for one.
        self._behave(garbage=True)

    def come_back(self) -> None:
        """Listen again."""
        self._behave()
        self._lead_to(LISTENER_PORT)

    def taken(self, path: str) -> list[Taken]:
        """What came to a path, in the order in which it came."""
        while True:
            after = f"after={self._read}&limit={MOST_AT_ONCE}"
            lines = ask(f"{self._url}/-/arrivals?{after}").splitlines()
            for line in map(json.loads, lines):
                self._read = line["index"]
                self._taken.append(
                    Taken(**{name: line[name] for name in Taken.__dataclass_fields__})
                )
            if len(lines) < MOST_AT_ONCE:
                return [one for one in self._taken if one.path == path]

    def lacks(self, path: str, identifiers: set[str]) -> set[str]:
        """Which of these have not come."""
        return identifiers - {one.identifier for one in self.taken(path)}

    def until_it_has(self, path: str, identifiers: set[str]) -> None:
        """Wait until all of these have come."""
        assert identifiers
        wait_for_all(lambda: self.lacks(path, identifiers), what=f"{self.name}{path}")

    def _lead_to(self, port: int) -> None:
        ports = [{"name": f"p{LISTENER_PORT}", "port": LISTENER_PORT, "targetPort": port}]
        patch = json.dumps({"spec": {"ports": ports}})
        self.kubectl.run("patch", "service", self.name, "--type=merge", "-p", patch)

    def _behave(self, **behaviour: object) -> None:
        ask(f"{self._url}/-/behaviour", body=json.dumps(behaviour).encode())

    @property
    def _url(self) -> str:
        return f"http://{self._address}:{LISTENER_PORT}"


def wait_for_all(lacking: Callable[[], set[str]], *, what: str) -> None:
    """Wait until nothing is lacking; a failure names what is."""
    try:
        wait_until(lambda: not lacking(), within=WITHIN, what=what)
    except TimeoutError:
        left = sorted(lacking())
        raise AssertionError(f"LOST at {what}: {len(left)}, from {left[:3]}") from None


def in_order(taken: list[Taken]) -> None:
    """What each publisher's thread was told one after the other came in that order, each number of
    a sequence context belongs to one indication, and what came twice was the same both times."""
    last: dict[str, str] = {}
    numbers: dict[tuple[str, int], str] = {}
    for one in same_content(taken):
        thread = one.identifier.rpartition(".")[0]
        assert last.get(thread, "") < one.identifier, (last[thread], one)
        last[thread] = one.identifier
    for one in taken:
        if one.context is not None and one.number is not None:
            assert numbers.setdefault((one.context, one.number), one.identifier) == one.identifier


def same_content(taken: list[Taken]) -> list[Taken]:
    """What came under one identifier was the same each time; returns the first of each."""
    first: dict[str, Taken] = {}
    for one in taken:
        assert _content(first.setdefault(one.identifier, one)) == _content(one)
    return list(first.values())


def _content(one: Taken) -> JSON:
    return {name: value for name, value in one.properties.items() if name not in OWN}


def once_each(taken: list[Taken]) -> None:
    """Nothing came twice, nothing late, and nothing is missing between two numbers."""
    assert taken
    assert len({one.identifier for one in taken}) == len(taken)
    assert {one.verdict for one in taken} == {"delivered"}
    expected: dict[str, int] = {}
    for one in taken:
        assert one.context is not None
        assert one.number is not None
        assert expected.setdefault(one.context, one.number) == one.number
        expected[one.context] += 1
