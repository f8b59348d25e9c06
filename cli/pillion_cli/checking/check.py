"""The steps of an installation check, each reported as it ends."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pillion_cli.checking.documents import KINDS, Plan, indication
from pillion_cli.exits import CLIError
from pillion_operator.cluster.api import FAILURES, ApiError
from pillion_operator.cluster.types import CONFIG_MAP, Object, ResourceType, our_type
from pillion_operator.injection.decision import has_deliverer
from pillion_operator.names import INJECT_LABEL, gateway

#: The time, in seconds.
Monotonic = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
#: Seconds between two looks at what the cluster does.
LOOK = 0.5
#: Seconds that the gateway is given to deliver, of which its answer says more than our giving up.
DELIVERY = 20.0
#: What is waited for: None once it holds, else what is the matter still.
Probe = Callable[[], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    seconds: float
    #: None: it went well.
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


#: Shows a step as soon as it has ended.
Report = Callable[[Step], object]


class Cluster(Protocol):
    """The API server. The methods raise what ``pillion_operator.cluster.api.FAILURES`` names."""

    async def get(self, kind: ResourceType, namespace: str | None, name: str) -> Object | None: ...

    async def create(self, body: Object, *, dry_run: bool = False) -> Object: ...

    async def delete(self, kind: ResourceType, namespace: str | None, name: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the gateway; ``document`` is empty where it has no JSON object."""

    status: int
    text: str
    document: Mapping[str, Any]


class Gateway(Protocol):
    """The gateway's intake. Raises OSError if nothing answers, or ``ca`` does not verify it."""

    async def publish(
        self, indication: Object, *, ca: str, token: str | None, wait: float
    ) -> Reply:
        """Publish with ``ack=delivered``. ``ca`` is PEM; ``wait`` in seconds."""


class Arrivals(Protocol):
    async def arrived(self, identifier: str) -> None: ...


class CheckError(CLIError):
    """A step failed; the message gives the cause and where to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    cluster: Cluster
    gateway: Gateway
    arrivals: Arrivals
    monotonic: Monotonic
    sleep: Sleep
    report: Report
    token: Callable[[], str]


class Check:
    """One check. ``identifier`` gives a new one each time, ``timeout`` is in seconds for each step;
    ``injection``: try that a pod gets a sidecar.
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
        #: The identifier of what was published last.
        self._sent = ""

    async def run(self) -> bool:
        """Take all steps, and remove everything again; whether all went well."""
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

    async def _until(self, probe: Probe, *, look: str) -> None:
        """Wait until the probe returns None; ``look`` says where to look if it does not."""
        end = self._world.monotonic() + self._timeout
        while (matter := await probe()) is not None:
            if self._world.monotonic() >= end:
                raise CheckError(f"after {self._timeout:g} s {matter}. {look}")
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
            look="A destination goes only once the operator has taken its finalizer off.",
        )

    async def _left(self) -> str | None:
        left = [kind for kind in KINDS if await self._get(kind) is not None]
        if not left:
            return None
        return f"{', '.join(left)} {self._plan.name} of {self._plan.namespace} is there"

    async def _get(self, kind: str) -> Object | None:
        return await self._world.cluster.get(our_type(kind), self._plan.namespace, self._plan.name)

    async def _accepted(self) -> None:
        await self._until(
            self._not_accepted,
            look="Does an operator run that serves this namespace? Its log and the resources' "
            "conditions say more.",
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
        # Ready is true as well where no deliverer runs yet.
        if (found["status"], found["reason"]) == ("True", "InForce"):
            return None
        return f"the subscription is {found['reason']}: {found['message']}"

    # ------------------------------------------------------------------ the gateway

    async def _shut(self) -> None:
        namespace = self._plan.namespace
        await self._until(
            self._not_shut,
            look="The gateway's log says what it waits for: its pod is ready, and behind its "
            "Service, only once the operator has told it the API server's keys of tokens. See "
            f"`kubectl --namespace {namespace} logs {gateway(self._plan.name)}-0`.",
        )

    async def _not_shut(self) -> str | None:
        name = gateway(self._plan.name)
        found = await self._world.cluster.get(CONFIG_MAP, self._plan.namespace, name)
        self._ca = str(((found or {}).get("data") or {}).get("ca.crt") or "")
        if not self._ca:
            return f"there is no ConfigMap {name} with ca.crt, by which publishers know the gateway"
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
            look="The gateway's log and the conditions of the destination say more: can its pod "
            f"reach {self._plan.listener}?",
        )
        try:
            await asyncio.wait_for(self._world.arrivals.arrived(self._sent), self._timeout)
        except TimeoutError:
            raise CheckError(
                "the gateway says that it is delivered, and the listener has not got it: does "
                f"another program listen at {self._plan.listener}?"
            ) from None

    async def _not_delivered(self) -> str | None:
        try:
            token = self._world.token()
        except OSError as error:
            raise CheckError(f"the token cannot be read: {error}") from error
        reply = await self._publish(token=token)
        if isinstance(reply, str):
            return reply
        said = reply.text.strip() or "nothing"
        if reply.status in (401, 403):
            raise CheckError(f"the gateway refuses the token: {reply.status}: {said}")
        if reply.status == 200 and reply.document.get("delivered") == 1:
            return None
        if reply.status == 202:
            return f"the listener has not taken it within {DELIVERY:g} s: {said}"
        return f"the gateway answers {reply.status}: {said}"

    async def _publish(self, *, token: str | None) -> Reply | str:
        """Publish a new indication; return the gateway's answer, or why there is none."""
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
    """The condition of a resource, where it is about what the resource says now."""
    status = (resource or {}).get("status") or {}
    for found in status.get("conditions") or ():
        if found["type"] == kind and _current(found, resource):
            known: Object = found
            return known
    return None


def _current(found: Object, resource: Object | None) -> bool:
    generation = ((resource or {}).get("metadata") or {}).get("generation")
    return bool(found.get("observedGeneration", generation) == generation)
