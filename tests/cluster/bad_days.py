"""What the tests of bad days share: an operator behind a proxy, as a user of its own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.convergence import World
from cluster.operators import OperatorProcess, Operators, running_operators
from pillion_testbed.audit import NOISE, Request, requests, writes
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl
from support.api_proxy import ApiProxy, api_proxy


@dataclass(frozen=True, slots=True, kw_only=True)
class BadDay:
    """A control plane, a namespace on it, and operators that reach it through a proxy."""

    plane: ControlPlane
    world: World
    admin: Kubectl
    operators: Operators
    proxy: ApiProxy
    #: The operators', which leads to the proxy.
    kubeconfig: Path
    #: The operators' user.
    user: str

    def start(self, *options: str, alone: bool = True) -> OperatorProcess:
        """Start an operator without a webhook; ``alone``: it leads at once."""
        election = ("--no-leader-election",) if alone else ()
        return self.operators.start("--no-webhook", *election, *options, kubeconfig=self.kubeconfig)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Have the API server away for a while."""
        self.plane.stop_api_server()
        try:
            yield
        finally:
            self.plane.start_api_server()

    def writes(self, *, without: frozenset[str] = NOISE) -> list[Request]:
        """What the operators have written so far, refused requests included."""
        return list(writes(self.plane.audit_log, self.user, without=without))

    def requests(self) -> list[Request]:
        """Whatever the operators have asked for so far."""
        return [one for one in requests(self.plane.audit_log) if one.user == self.user]


def looked_at_everything(day: BadDay, operator: OperatorProcess) -> bool:
    """Whether an operator has reconciled each of our objects at least once, and well."""
    done: dict[str, float] = {}
    for sample, value in operator.metrics().items():
        if sample.startswith("pillion_operator_reconciles_total{") and '"success"' in sample:
            kind = sample.partition('kind="')[2].partition('"')[0]
            done[kind] = done.get(kind, 0.0) + value
    kinds = [body["kind"] for body in day.world.ours()]
    wanted = {kind: kinds.count(kind) for kind in kinds}
    wanted["IndicationService/status"] = wanted.get("IndicationService", 0)
    return all(done.get(kind, 0.0) >= count for kind, count in wanted.items())


@contextmanager
def bad_day(
    plane: ControlPlane, admin: Kubectl, *, folder: Path, namespaces: tuple[str, ...]
) -> Iterator[BadDay]:
    """A bad day in the first of ``namespaces``; the operators serve all of them."""
    home = f"{namespaces[0]}-operator"
    with (
        running_operators(admin, folder=folder, namespace=home, watched=namespaces) as operators,
        api_proxy(
            upstream=plane.url,
            ca=plane.ca,
            certificate=plane.folder / "server.crt",
            key=plane.folder / "server.key",
        ) as proxy,
    ):
        user = f"system:serviceaccount:{home}:operator"
        admin.run("create", "serviceaccount", "operator", f"--namespace={home}")
        admin.run(
            *("create", "clusterrolebinding", home),
            *("--clusterrole=cluster-admin", f"--serviceaccount={home}:operator"),
        )
        config = json.loads(plane.service_account_kubeconfig(home, "operator").read_text())
        config["clusters"][0]["cluster"]["server"] = proxy.url
        kubeconfig = folder / "proxied.kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(json.dumps(config))
        world = World(plane, namespaces[0])
        try:
            yield BadDay(
                plane=plane,
                world=world,
                admin=admin,
                operators=operators,
                proxy=proxy,
                kubeconfig=kubeconfig,
                user=user,
            )
        finally:
            operators.close()
            world.close()
            admin.run("delete", "clusterrolebinding", home)
