"""Who may come to the API server of the test bed, and the kubeconfig files for them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The name of the cluster and of each kubeconfig's context: the guard lets it pass.
CLUSTER = "pillion-test"


@dataclass(frozen=True, slots=True)
class User:
    """A user of the token file. One without a group has no right until RBAC gives it one."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = User("admin", ("system:masters",))
MANAGER = User("kube-controller-manager", ("system:masters",))
#: Whom the node's part in these tests is played as, in the audit log.
KUBELET = User("kubelet", ("system:masters",))
#: The two that the API server's own roles are for. Nodes come as themselves: see ``node_user``.
SCHEDULER = User("system:kube-scheduler")
PROXY = User("system:kube-proxy")
USERS = (
    ADMIN,
    MANAGER,
    KUBELET,
    SCHEDULER,
    PROXY,
    User("operator"),
    User("alice"),
    User("bob"),
)


def node_user(name: str) -> User:
    """Whom a node's kubelet acts as, so that it has a node's rights and no more."""
    return User(f"system:node:{name}", ("system:nodes",))


def token_file(tokens: dict[str, str]) -> str:
    """Return the file that ``--token-auth-file`` names."""
    return "".join(
        f'{tokens[user.name]},{user.name},{user.name},"{",".join(user.groups)}"\n' for user in USERS
    )


def kubeconfig(
    *, server: str, ca: Path, user: str, token: str, acting_as: User | None = None
) -> dict[str, Any]:
    """Return a kubeconfig with one context. ``acting_as``: the token's user must be an admin."""
    credentials: dict[str, Any] = {"token": token}
    if acting_as is not None:
        credentials |= {"as": acting_as.name, "as-groups": list(acting_as.groups)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": CLUSTER, "cluster": {"server": server, "certificate-authority": str(ca)}}
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": user}}],
        "current-context": CLUSTER,
    }


def write_kubeconfig(path: Path, content: dict[str, Any]) -> Path:
    """Write one, readable for nobody else. JSON is YAML."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1))
    return path
