"""The API server's audit log: who wrote what, for tests that bound what a change may cost."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
#: What a process writes all the time or once in a while, whatever happens.
NOISE = frozenset({"leases", "events"})

#: Metadata of every request but the control plane's own, once it is answered.
POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "users": ["system:apiserver", "kube-controller-manager"]},
        {"level": "None", "nonResourceURLs": ["*"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answered request. ``status`` is that of HTTP; a subresource is part of ``resource``."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    status: int
    uri: str


def requests(log: Path) -> Iterator[Request]:
    """Yield every request of the log, oldest first, but not a line that is half written."""
    if not log.exists():
        return
    for line in log.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield _request(json.loads(line))


def writes(
    log: Path,
    user: str,
    *,
    namespace: str | None = None,
    without: frozenset[str] = NOISE,
    dry_run: bool = False,
) -> Iterator[Request]:
    """Yield what a user wrote, in one namespace or everywhere, refused requests included.

    ``without`` names resources that do not count, ``dry_run`` counts writes that changed nothing.
    """
    for request in requests(log):
        if (
            request.user == user
            and request.verb in WRITES
            and request.resource.partition("/")[0] not in without
            and namespace in (None, request.namespace)
            and (dry_run or "dryRun=" not in request.uri)
        ):
            yield request


def _request(event: dict[str, Any]) -> Request:
    about = event.get("objectRef") or {}
    resource = about.get("resource", "")
    if about.get("subresource"):
        resource += f"/{about['subresource']}"
    return Request(
        user=(event.get("impersonatedUser") or event["user"]).get("username", ""),
        verb=event["verb"],
        resource=resource,
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        status=(event.get("responseStatus") or {}).get("code", 0),
        uri=event.get("requestURI", ""),
    )
