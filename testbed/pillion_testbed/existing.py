"""Somebody's cluster instead of one of our own: only one that is named as a test cluster."""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PATTERNS = ("kind-*", "k3d-*", "minikube", "*pillion-test*")


class RefusedCluster(Exception):
    """The cluster is not named as one for tests, or cannot be told."""


@dataclass(frozen=True, slots=True)
class ExistingCluster:
    """A cluster that runs already. Tests that stop its API server or read its log cannot use it."""

    path: Path
    context: str

    def kubeconfig(self) -> Path:
        """Return its kubeconfig, which has an administrator's rights."""
        return self.path


def existing_cluster(environment: Mapping[str, str]) -> ExistingCluster | None:
    """Return the cluster that the environment asks for; None: make one."""
    asked = environment.get("USE_EXISTING_CLUSTER", "")
    if asked.lower() not in ("true", "1"):
        return None
    named = environment.get("KUBECONFIG", "")
    if not named or not Path(named).is_file():
        raise RefusedCluster(
            f"USE_EXISTING_CLUSTER={asked} needs KUBECONFIG to name one file; it is {named!r}"
        )
    path = Path(named).absolute()
    return ExistingCluster(path, guarded_context(yaml.safe_load(path.read_text()), path))


def guarded_context(kubeconfig: Any, path: Path) -> str:
    """Return the current context's name, if it is a test cluster's; RefusedCluster otherwise."""
    context = kubeconfig.get("current-context") if isinstance(kubeconfig, dict) else None
    if not context:
        raise RefusedCluster(f"{path} has no current-context; set one of a test cluster")
    if not any(fnmatch.fnmatchcase(context, pattern) for pattern in PATTERNS):
        raise RefusedCluster(
            f"the current context of {path} is {context!r}: the tests make and delete what they "
            f"like, so they use only a context named {', '.join(PATTERNS)}; rename or choose one"
        )
    return str(context)
