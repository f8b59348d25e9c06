"""A check of an installation: its resources, its steps, the gateway and the listener."""

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from pillion_cli.exits import CLIError
from pillion_cli.listener.arrivals import Arrival, Summary
from pillion_cli.listener.sequence import Outcome
from pillion_operator.cluster.api import FAILURES, ApiError
from pillion_operator.cluster.types import CONFIG_MAP, Object, ResourceType, our_type
from pillion_operator.injection.decision import has_deliverer
from pillion_operator.names import INJECT_LABEL, gateway

PART_OF = {"app.kubernetes.io/part-of": "pillion", "app.kubernetes.io/component": "check"}

#: The kinds of the resources, in order of creation; they are deleted in reverse.
KINDS = (
    "IndicationService",
    "ListenerDestination",
    "IndicationFilter",
    "IndicationSubscription",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to create: ``name`` is that of every resource, ``listener`` a URL that the gateway's pod
    can reach, ``publisher`` the namespace and service account of the token."""

    namespace: str
    name: str
    listener: str
    publisher: tuple[str, str]
    #: Image of the pod of the injection check, which never runs.
    image: str = "pillion-check"

    def documents(self) -> list[dict[str, Any]]:
        """Return the resources: a gateway, and one listener of all indications."""
        account = {"namespace": self.publisher[0], "serviceAccount": self.publisher[1]}
        reference = {"name": self.name}
        specs: dict[str, dict[str, Any]] = {
            "IndicationService": {
                "deliverer": {"mode": "Gateway"},
                "publishers": [account],
                # Reports an unreachable listener within the check's time.
                "deliveryRetryIntervalSeconds": 1,
            },
            "ListenerDestination": {"destination": self.listener, "protocol": "CIM-XML"},
            "IndicationFilter": {"query": "SELECT * FROM CIM_AlertIndication"},
            "IndicationSubscription": {
                "serviceRef": reference,
                "filterRef": reference,
                "destinationRef": reference,
            },
        }
        return [
            {
                "apiVersion": our_type(kind).api_version,
                "kind": kind,
                "metadata": self._metadata(),
                "spec": specs[kind],
            }
            for kind in KINDS
        ]

    def pod(self) -> dict[str, Any]:
        metadata = self._metadata()
        # The service need not exist, and the check's own has mode Gateway.
        metadata["labels"] = {**metadata["labels"], INJECT_LABEL: f"{self.name}-sidecar"}
        security = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        container = {
            "name": "application",
            "image": self.image,
            "securityContext": security,
            "resources": {
                "requests": {"cpu": "10m", "memory": "16Mi"},
                "limits": {"cpu": "10m", "memory": "16Mi"},
            },
        }
        context = {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "automountServiceAccountToken": False,
                "securityContext": context,
                "containers": [container],
            },
        }

    def _metadata(self) -> dict[str, Any]:
        return {"name": self.name, "namespace": self.namespace, "labels": dict(PART_OF)}


def indication(identifier: str) -> dict[str, Any]:
    return {
        "class": "CIM_AlertIndication",
        "properties": {
            "IndicationIdentifier": identifier,
            "AlertType": 5,
            "PerceivedSeverity": 2,
            "ProbableCause": 1,
            "Description": "A check of the installation of Pillion: nothing has happened.",
        },
    }


#: Seconds between two polls of the cluster.
LOOK = 0.5
#: Seconds for the gateway to deliver. Its answer says more than a timeout of this client.
DELIVERY = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    seconds: float
    failure: str | None

    def as_text(self) -> str:
        if self.failure is not None:
            return f"FAILED  {self.name}: {self.failure}"
        return f"ok      {self.name} ({self.seconds:.1f} s)"

    def as_json(self) -> str:
        return json.dumps(
            {
                "step": self.name,
                "ok": self.failure is None,
                "seconds": round(self.seconds, 3),
                "failure": self.failure,
            }
        )


class Cluster(Protocol):
    """The methods raise ``pillion_operator.cluster.api.FAILURES``."""

    async def get(self, kind: ResourceType, namespace: str | None, name: str) -> Object | None: ...

    async def create(self, body: Object, *, dry_run: bool = False) -> Object: ...

    async def delete(self, kind: ResourceType, namespace: str | None, name: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the gateway; ``document`` is empty without a JSON object."""

    status: int
    text: str
    document: Mapping[str, Any]


class Gateway(Protocol):
    """The gateway's intake. Raises OSError without an answer, or if ``ca`` does not verify it."""

    async def publish(
        self, indication: Object, *, ca: str, token: str | None, wait: float
    ) -> Reply:
        """Publish with ``ack=delivered``. ``ca`` is PEM; ``wait`` in seconds."""


class Arrivals(Protocol):
    async def arrived(self, identifier: str) -> None: ...


class CheckError(CLIError):
    """The message names the cause and where to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    cluster: Cluster
    gateway: Gateway
    arrivals: Arrivals
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    report: Callable[[Step], object]
    token: Callable[[], str]


class Check:
    """One check. ``identifier`` returns a new identifier at each call; ``timeout`` (seconds) is for
    each step; ``injection`` also checks that a pod gets a sidecar.
    """

    def __init__(
        self,
        plan: Plan,
        world: World,
        *,
        identifier: Callable[[], str],
        timeout: float,
        injection: bool,
    ) -> None:
        self._plan = plan
        self._world = world
        self._identifier = identifier
        self._timeout = timeout
        self._injection = injection
        self._ca = ""
        self._sent = ""

    async def run(self) -> bool:
        """Return whether all steps succeeded; the resources are removed in any case."""
        steps: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("nothing is left of a check before", self._remove),
            ("the API server takes the resources", self._create),
            ("the operator accepts them", self._accepted),
            ("a gateway runs on them", self._in_force),
            ("the gateway refuses a request without a token", self._shut),
            ("an indication is delivered to the listener", self._deliver),
        ]
        if self._injection:
            steps.append(("a new pod gets its deliverer", self._injected))
        try:
            went_well = await self._take(steps)
        finally:
            removed = await self._take([("the resources are removed", self._remove)])
        return went_well and removed

    async def _take(self, steps: Sequence[tuple[str, Callable[[], Awaitable[None]]]]) -> bool:
        for name, step in steps:
            began = self._world.monotonic()
            failure: str | None = None
            try:
                await step()
            except CheckError as error:
                failure = str(error)
            except FAILURES as error:
                failure = f"the API server says: {str(error) or type(error).__name__}"
            self._world.report(Step(name, self._world.monotonic() - began, failure))
            if failure is not None:
                return False
        return True

    async def _until(self, probe: Callable[[], Awaitable[str | None]], *, look: str) -> None:
        """Poll until the probe returns no problem; ``look`` says where to look for the cause."""
        end = self._world.monotonic() + self._timeout
        while (problem := await probe()) is not None:
            if self._world.monotonic() >= end:
                raise CheckError(f"after {self._timeout:g} s {problem}. {look}")
            await self._world.sleep(LOOK)

    # ------------------------------------------------------------------ resources

    async def _create(self) -> None:
        for document in self._plan.documents():
            try:
                await self._world.cluster.create(document)
            except ApiError as error:
                raise CheckError(
                    f"{document['kind']}: {error}. Are the custom resource definitions those of "
                    "this version (crds.install), and may the check's service account create "
                    "them here?"
                ) from error

    async def _remove(self) -> None:
        for kind in reversed(KINDS):
            await self._world.cluster.delete(our_type(kind), self._plan.namespace, self._plan.name)
        await self._until(
            self._left,
            look="A destination is deleted only after the operator has removed its finalizer.",
        )

    async def _left(self) -> str | None:
        left = [kind for kind in KINDS if await self._get(kind) is not None]
        if not left:
            return None
        return f"{', '.join(left)} {self._plan.name} of {self._plan.namespace} still exists"

    async def _get(self, kind: str) -> Object | None:
        return await self._world.cluster.get(our_type(kind), self._plan.namespace, self._plan.name)

    async def _accepted(self) -> None:
        await self._until(
            self._not_accepted,
            look="Does an operator serve this namespace? See its log and the conditions of the "
            "resources.",
        )

    async def _not_accepted(self) -> str | None:
        for kind in KINDS:
            found = condition(await self._get(kind), "Accepted")
            if found is None:
                return f"no operator has judged the {kind}"
            if found["status"] != "True":
                return f"the {kind} is not accepted: {found['reason']}: {found['message']}"
        return None

    async def _in_force(self) -> None:
        namespace, name = self._plan.namespace, self._plan.name
        await self._until(
            self._not_in_force,
            look=f"See `kubectl --namespace {namespace} get statefulset,pod,event`: is the image "
            f"pulled, is the pod {gateway(name)}-0 scheduled, and do NetworkPolicies let the "
            "operator reach its port 8289?",
        )

    async def _not_in_force(self) -> str | None:
        found = condition(await self._get("IndicationSubscription"), "Ready")
        if found is None:
            return "the subscription has no condition Ready"
        # Ready is also true before a deliverer runs.
        if (found["status"], found["reason"]) == ("True", "InForce"):
            return None
        return f"the subscription is {found['reason']}: {found['message']}"

    # ------------------------------------------------------------------ the gateway

    async def _shut(self) -> None:
        namespace = self._plan.namespace
        await self._until(
            self._not_shut,
            look="The gateway's pod is ready only after the operator has given it the API server's "
            "keys of tokens. Its log says what it waits for: "
            f"`kubectl --namespace {namespace} logs {gateway(self._plan.name)}-0`.",
        )

    async def _not_shut(self) -> str | None:
        name = gateway(self._plan.name)
        found = await self._world.cluster.get(CONFIG_MAP, self._plan.namespace, name)
        self._ca = str(((found or {}).get("data") or {}).get("ca.crt") or "")
        if not self._ca:
            return f"there is no ConfigMap {name} with ca.crt, which verifies the gateway"
        reply = await self._publish(token=None)
        if isinstance(reply, str):
            return reply
        if reply.status == 401:
            return None
        if reply.status < 300:
            raise CheckError("it accepts an indication without a token")
        return f"it answers {reply.status}: {reply.text.strip()}"

    async def _deliver(self) -> None:
        await self._until(
            self._not_delivered,
            look=f"Can the gateway's pod reach {self._plan.listener}? See its log and the "
            "conditions of the destination.",
        )
        try:
            await asyncio.wait_for(self._world.arrivals.arrived(self._sent), self._timeout)
        except TimeoutError:
            raise CheckError(
                "the gateway has delivered the indication, but this listener has not received it: "
                f"does another program listen at {self._plan.listener}?"
            ) from None

    async def _not_delivered(self) -> str | None:
        try:
            token = self._world.token()
        except OSError as error:
            raise CheckError(f"--token-file: the token cannot be read: {error}") from error
        reply = await self._publish(token=token)
        if isinstance(reply, str):
            return reply
        said = reply.text.strip() or "nothing"
        if reply.status in (401, 403):
            raise CheckError(f"the gateway refuses the token: {reply.status}: {said}")
        if reply.status == 200 and reply.document.get("delivered") == 1:
            return None
        if reply.status == 202:
            return f"the listener has not accepted it within {DELIVERY:g} s: {said}"
        return f"the gateway answers {reply.status}: {said}"

    async def _publish(self, *, token: str | None) -> Reply | str:
        """Return the answer, or why there is none."""
        self._sent = self._identifier()
        try:
            return await self._world.gateway.publish(
                indication(self._sent), ca=self._ca, token=token, wait=DELIVERY
            )
        except OSError as error:
            return f"the gateway cannot be reached: {error}"

    # ------------------------------------------------------------------ injection

    async def _injected(self) -> None:
        made = await self._world.cluster.create(self._plan.pod(), dry_run=True)
        if not has_deliverer(made):
            asked = made["metadata"]["labels"][INJECT_LABEL]
            raise CheckError(
                f"a pod of {self._plan.namespace} labelled {INJECT_LABEL}: {asked} would start "
                "without one. Can the API server reach the webhook's Service, does its caBundle "
                "fit, and does injection.namespaceSelector let this namespace through?"
            )


def condition(resource: Object | None, kind: str) -> Object | None:
    """Return a condition of the current generation."""
    status = (resource or {}).get("status") or {}
    for found in status.get("conditions") or ():
        if found["type"] == kind and _current(found, resource):
            known: Object = found
            return known
    return None


def _current(found: Object, resource: Object | None) -> bool:
    generation = ((resource or {}).get("metadata") or {}).get("generation")
    return bool(found.get("observedGeneration", generation) == generation)


#: Seconds beyond the timeout of the request.
NETWORK = 10.0
#: Characters of an answer that are shown.
SHOWN = 500


class HTTPSGateway:
    def __init__(self, url: str) -> None:
        self._url = url

    async def publish(
        self, indication: Object, *, ca: str, token: str | None, wait: float
    ) -> Reply:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        limit = aiohttp.ClientTimeout(total=wait + NETWORK)
        try:
            context = ssl.create_default_context(cadata=ca)
            # RFC 9525 6.3: a name counts in subjectAltName only.
            context.hostname_checks_common_name = False
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.post(
                    f"{self._url}/v1/indications",
                    params={"ack": "delivered", "timeout": f"{wait:g}"},
                    json=dict(indication),
                    headers=headers,
                    ssl=context,
                    allow_redirects=False,
                ) as answer,
            ):
                text = await answer.text(errors="replace")
                return Reply(status=answer.status, text=text[:SHOWN], document=_document(text))
        except aiohttp.ClientConnectorError as error:
            # The outer error shows only the connection's key.
            raise OSError(str(error.os_error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OSError(str(error) or type(error).__name__) from error


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Arrived:
    def __init__(self) -> None:
        # A check publishes only a few indications.
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def arrived(self, identifier: str) -> None:
        await self._events[identifier].wait()

    def started(self, url: str) -> None:
        pass

    def happened(self, outcome: Outcome[Arrival]) -> None:
        identifier = outcome.item.text("IndicationIdentifier")
        if identifier is not None:
            self._events[identifier].set()

    def answered(self, what: str, *, path: str) -> None:
        pass

    def ended(self, summary: Summary) -> None:
        pass
