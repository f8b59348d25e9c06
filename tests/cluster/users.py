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
USERS = (ADMIN, MANAGER, KUBELET, User("operator"), User("alice"), User("bob"))


def token_file(tokens: dict[str, str]) -> str:
    """Return the file that ``--token-auth-file`` names."""
    return "".join(
        f'{tokens[user.name]},{user.name},{user.name},"{",".join(user.groups)}"\n' for user in USERS
    )


def kubeconfig(*, server: str, ca: Path, user: str, token: str) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": CLUSTER, "cluster": {"server": server, "certificate-authority": str(ca)}}
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": user}}],
        "current-context": CLUSTER,
    }


def write_kubeconfig(path: Path, content: dict[str, Any]) -> Path:
    """Write one, readable for nobody else. JSON is YAML."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1))
    return path
