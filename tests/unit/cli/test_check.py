"""``pillion check``: each step against a cluster that fails in its own way."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pillion_cli.cluster_check import (
    KINDS,
    LOOK,
    PART_OF,
    Arrived,
    Check,
    HTTPSGateway,
    Plan,
    Reply,
    Step,
    World,
    condition,
    indication,
)
from pillion_cli.commands import check as command
from pillion_cli.exits import Exit
from pillion_cli.listener.arrivals import Arrival
from pillion_cli.listener.sequence import Outcome, Verdict
from pillion_cli.main import command_parser, main
from pillion_operator.cluster.api import ApiError
from pillion_operator.cluster.types import Object, ResourceType
from pillion_operator.names import CONTAINER, INJECT_LABEL

PLAN = Plan(
    namespace="trial",
    name="pillion-check",
    listener="http://10.244.0.9:5988/check",
    publisher=("pillion-system", "pillion-test"),
)
ACCEPTED = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
IN_FORCE = {"type": "Ready", "status": "True", "reason": "InForce", "message": ""}
UNAUTHORIZED = Reply(status=401, text="there is no token", document={})
DELIVERED = Reply(status=200, text="{}", document={"delivered": 1})
AT_ONCE = 0.02


@dataclass
class FakeCluster:
    """An API server with an operator that answers with these conditions."""

    conditions: list[Mapping[str, Any]] = field(default_factory=lambda: [ACCEPTED, IN_FORCE])
    #: What every resource is said to be before: lists of conditions, one at a time.
    before: list[list[Mapping[str, Any]]] = field(default_factory=list)
    ca: str = "PEM"
    injects: bool = True
    refuses: str = ""
    objects: dict[tuple[str, str | None, str], Object] = field(default_factory=dict)
    tried: list[Object] = field(default_factory=list)

    async def get(self, kind: ResourceType, namespace: str | None, name: str) -> Object | None:
        if kind.kind == "ConfigMap":
            return {"data": {"ca.crt": self.ca}} if self.ca else None
        found = self.objects.get((kind.kind, namespace, name))
        if found is None:
            return None
        conditions = self.conditions
        if self.before and kind.kind == "IndicationSubscription":
            conditions = [*self.before.pop(0)]
        return {**found, "status": {"conditions": conditions}}

    async def create(self, body: Object, *, dry_run: bool = False) -> Object:
        if self.refuses == body["kind"]:
            raise ApiError(403, "Forbidden", f"no rights for {body['kind']}")
        if dry_run:
            self.tried.append(body)
            extra = [{"name": CONTAINER}] if self.injects else []
            return {**body, "spec": {**body["spec"], "initContainers": extra}}
        metadata = body["metadata"]
        self.objects[body["kind"], metadata["namespace"], metadata["name"]] = body
        return body

    async def delete(self, kind: ResourceType, namespace: str | None, name: str) -> None:
        self.objects.pop((kind.kind, namespace, name), None)


@dataclass
class FakeGateway:
    """Answers what it was given, the last again and again."""

    shut: list[Reply | OSError] = field(default_factory=lambda: [UNAUTHORIZED])
    open: list[Reply | OSError] = field(default_factory=lambda: [DELIVERED])
    tokens: list[str | None] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    async def publish(
        self, indication: Object, *, ca: str, token: str | None, wait: float
    ) -> Reply:
        assert ca == "PEM"
        self.tokens.append(token)
        self.sent.append(indication["properties"]["IndicationIdentifier"])
        answers = self.shut if token is None else self.open
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


class FakeArrivals:
    """Everything, or nothing, has arrived."""

    def __init__(self, *, everything: bool = True) -> None:
        self._everything = everything
        self.asked: list[str] = []

    async def arrived(self, identifier: str) -> None:
        self.asked.append(identifier)
        if not self._everything:
            await asyncio.Event().wait()


def unreadable() -> str:
    raise OSError("No such file: token")


class Trial:
    """A check against these fakes, whose time passes in its own sleeps."""

    def __init__(
        self,
        cluster: FakeCluster | None = None,
        gateway: FakeGateway | None = None,
        arrivals: FakeArrivals | None = None,
        *,
        timeout: float = 10.0,
        injection: bool = False,
        token: Any = lambda: "TOKEN",
    ) -> None:
        self.cluster = cluster or FakeCluster()
        self.gateway = gateway or FakeGateway()
        self.arrivals = arrivals or FakeArrivals()
        self.lines: list[str] = []
        self.steps: list[dict[str, Any]] = []
        self.slept: list[float] = []
        self.waiting = asyncio.Event()
        numbers = count(1)
        world = World(
            cluster=self.cluster,
            gateway=self.gateway,
            arrivals=self.arrivals,
            monotonic=lambda: sum(self.slept),
            sleep=self._sleep,
            report=self._report,
            token=token,
        )
        self._check = Check(
            PLAN,
            world,
            identifier=lambda: f"alert-{next(numbers)}",
            timeout=timeout,
            injection=injection,
        )

    def _report(self, step: Step) -> None:
        self.lines.append(step.as_text())
        self.steps.append(json.loads(step.as_json()))

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.waiting.set()
        await asyncio.sleep(0)

    async def run(self) -> bool:
        went_well = await self._check.run()
        # Whatever happened, nothing stays.
        assert self.cluster.objects == {}
        return went_well

    async def failure(self) -> str:
        assert not await self.run()
        (failed,) = [line for line in self.lines if line.startswith("FAILED")]
        return failed


async def test_a_check_that_goes_well_tells_each_step_and_leaves_nothing() -> None:
    trial = Trial(injection=True)
    assert await trial.run()
    assert [line.partition(" (")[0].removeprefix("ok").strip() for line in trial.lines] == [
        "nothing is left of a check before",
        "the API server takes the resources",
        "the operator accepts them",
        "a gateway runs on them",
        "the gateway refuses a request without a token",
        "an indication is delivered to the listener",
        "a new pod gets its deliverer",
        "the resources are removed",
    ]
    assert trial.gateway.tokens == [None, "TOKEN"]
    assert trial.arrivals.asked == [trial.gateway.sent[-1]]
    assert all(step["ok"] and step["failure"] is None for step in trial.steps)
    assert trial.steps[-1]["step"] == "the resources are removed"


async def test_what_a_check_before_has_left_is_removed_first() -> None:
    cluster = FakeCluster()
    for document in PLAN.documents():
        await cluster.create(document)
    assert await Trial(cluster).run()


async def test_without_an_operator_that_serves_the_namespace_this_is_said() -> None:
    trial = Trial(FakeCluster(conditions=[]))
    failed = await trial.failure()
    assert "no operator has judged the IndicationService" in failed
    assert "Does an operator serve this namespace?" in failed
    (told,) = [step for step in trial.steps if not step["ok"]]
    assert "no operator has judged the IndicationService" in told["failure"]
    assert sum(trial.slept) == pytest.approx(10, abs=LOOK)
    assert trial.gateway.sent == []


async def test_a_condition_about_an_older_state_does_not_count() -> None:
    resource = {
        "metadata": {"generation": 2},
        "status": {"conditions": [{**ACCEPTED, "observedGeneration": 1}]},
    }
    assert condition(resource, "Accepted") is None
    resource["status"]["conditions"][0]["observedGeneration"] = 2
    assert condition(resource, "Accepted") is not None


async def test_a_resource_that_is_not_accepted_is_quoted() -> None:
    refused = {**ACCEPTED, "status": "False", "reason": "Invalid", "message": "spec: wrong"}
    failed = await Trial(FakeCluster(conditions=[refused])).failure()
    assert "the IndicationService is not accepted: Invalid: spec: wrong" in failed


async def test_it_waits_until_a_deliverer_runs_and_not_only_until_ready() -> None:
    waits = {**IN_FORCE, "reason": "NoDeliverers", "message": "no deliverer runs"}
    # The operator is asked about the subscription once for Accepted.
    cluster = FakeCluster(before=[[ACCEPTED, IN_FORCE], [ACCEPTED, waits], [ACCEPTED, waits]])
    trial = Trial(cluster)
    assert await trial.run()
    assert trial.slept == [LOOK, LOOK]

    failed = await Trial(FakeCluster(conditions=[ACCEPTED, waits])).failure()
    assert "the subscription is NoDeliverers: no deliverer runs" in failed
    assert "pillion-pillion-check-0" in failed


async def test_a_right_that_is_missing_is_named() -> None:
    failed = await Trial(FakeCluster(refuses="ListenerDestination")).failure()
    assert "no rights for ListenerDestination" in failed
    failed = await Trial(FakeCluster(refuses="Pod"), injection=True).failure()
    assert "no rights for Pod" in failed


async def test_a_gateway_that_lets_anybody_in_fails_at_once() -> None:
    trial = Trial(gateway=FakeGateway(shut=[DELIVERED]))
    assert "it accepts an indication without a token" in await trial.failure()
    assert trial.slept == []


async def test_it_waits_for_a_door_that_is_not_there_yet() -> None:
    starting = Reply(status=503, text="no keys yet", document={})
    trial = Trial(gateway=FakeGateway(shut=[OSError("connection refused"), starting, UNAUTHORIZED]))
    assert await trial.run()
    assert len(trial.slept) == 2
    failed = await Trial(gateway=FakeGateway(shut=[OSError("certificate verify failed")])).failure()
    assert "the gateway cannot be reached: certificate verify failed" in failed


async def test_without_the_authority_of_the_gateway_its_config_map_is_named() -> None:
    failed = await Trial(FakeCluster(ca="")).failure()
    assert "there is no ConfigMap pillion-pillion-check with ca.crt" in failed


async def test_a_token_that_is_not_taken_fails_at_once() -> None:
    forbidden = Reply(status=403, text="not among publishers", document={})
    trial = Trial(gateway=FakeGateway(open=[forbidden]))
    assert "refuses the token: 403: not among publishers" in await trial.failure()
    assert trial.slept == []
    failed = await Trial(token=unreadable).failure()
    assert "--token-file: the token cannot be read: No such file: token" in failed


async def test_what_is_not_delivered_in_time_is_published_anew_as_another() -> None:
    pending = Reply(status=202, text='{"pending": 1}', document={"delivered": 0})
    trial = Trial(gateway=FakeGateway(open=[pending, DELIVERED]))
    assert await trial.run()
    assert len(set(trial.gateway.sent)) == 3
    failed = await Trial(gateway=FakeGateway(open=[pending])).failure()
    assert "the listener has not accepted it within 20 s" in failed
    assert PLAN.listener in failed


async def test_a_delivery_to_somebody_else_is_none() -> None:
    trial = Trial(arrivals=FakeArrivals(everything=False), timeout=AT_ONCE)
    assert "this listener has not received it" in await trial.failure()


async def test_a_pod_that_would_have_no_deliverer_fails() -> None:
    trial = Trial(FakeCluster(injects=False), injection=True)
    failed = await trial.failure()
    assert f"labelled {INJECT_LABEL}: pillion-check-sidecar would start without one" in failed
    assert len(trial.cluster.tried) == 1


async def test_it_is_removed_when_the_check_is_told_to_end() -> None:
    trial = Trial(FakeCluster(conditions=[]), timeout=1e9)
    running = asyncio.create_task(trial.run())
    await trial.waiting.wait()
    assert trial.cluster.objects
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert trial.cluster.objects == {}


def test_the_resources_are_valid_and_all_that_is_made_is_labelled(tmp_path: Path) -> None:
    documents = PLAN.documents()
    assert [document["kind"] for document in documents] == list(KINDS)
    for document in (*documents, PLAN.pod()):
        assert document["metadata"]["labels"].items() >= PART_OF.items()
    text = "\n---\n".join(map(json.dumps, documents))
    (tmp_path / "resources.yaml").write_text(text)
    assert main(["validate", str(tmp_path)]) == Exit.OK


def test_the_pod_for_trial_keeps_to_the_restricted_profile() -> None:
    spec = PLAN.pod()["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


async def test_the_listener_tells_of_what_has_come_and_of_nothing_else() -> None:
    arrivals = Arrived()
    waiting = asyncio.create_task(arrivals.arrived("alert-1"))
    for identifier in ("alert-0", "alert-1"):
        await asyncio.sleep(0)
        assert not waiting.done()
        arrival = Arrival(
            class_name="CIM_AlertIndication",
            properties=indication(identifier)["properties"],
            protocol="CIM-XML",
            path="/check",
        )
        outcome = Outcome(item=arrival, verdict=Verdict.DELIVERED, reason="", identifier=None)
        arrivals.happened(outcome)
    await waiting


async def test_an_authority_that_is_none_is_an_error_like_that_of_an_unreachable_door() -> None:
    with pytest.raises(OSError, match=r"\S"):
        await HTTPSGateway("https://127.0.0.1:9").publish(
            indication("alert-1"), ca="no PEM", token=None, wait=1
        )


def test_the_command_line_is_read() -> None:
    parser = command_parser("check", command)
    given = ["--namespace", "trial", "--address", "10.1.2.3", "--publisher", "a:b"]
    args = parser.parse_args([*given, "--injection"])
    assert (args.publisher, args.injection, args.name) == (("a", "b"), True, "pillion-check")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--publisher", "nobody", "is not NAMESPACE:NAME"), ("--timeout", "0", "from 0.001 to 3600")],
)
def test_a_wrong_command_line_is_refused(
    option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "--namespace", "n", "--address", "a", "--publisher", "a:b", option, value])
    assert ended.value.code == Exit.USAGE
    assert said in capsys.readouterr().err


def test_without_a_cluster_the_check_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "kubeconfig")
    given = ["--namespace", "n", "--address", "127.0.0.1", "--port", "0", "--publisher", "a:b"]
    assert main(["check", *given, "--kubeconfig", missing]) == Exit.FAILED
    assert "the API server cannot be reached" in capsys.readouterr().err
