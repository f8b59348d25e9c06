"""Which objects continue earlier ones of their names. Pure.

Whoever deletes a custom resource definition and applies it again, with its objects, gets objects
with other uids. Deliverers know queues and subscriptions by uid, and discard what waits for a uid
that is gone. So such an object continues the earlier one: it is rendered with the uid and the
creationTimestamp of that.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.lastgood import rendered_objects
from pillion_operator.names import RENDERED, SERVICE_LABEL, UID_ANNOTATION
from pillion_operator.store import IDENTITY, Key, Store, uid_of
from pillion_sidecar.config.schema import CREDENTIALS_LABEL


def recall(store: Store) -> None:
    """Take from the rendered configurations which objects continue others: an operator that was
    started since then knows it from nowhere else."""
    for key, uid, identity in _continuing(store):
        body = store.get(key)
        if body is not None and uid_of(body) == uid:
            store.continues(key, identity)


def _continuing(store: Store) -> Iterator[tuple[Key, str, dict[str, Any]]]:
    for namespace in store.namespaces("Secret"):
        for secrets in _by_service(store.all("Secret", namespace).values()):
            for one in rendered_objects(secrets):
                metadata = one["metadata"]
                uid = (metadata.get("annotations") or {}).get(UID_ANNOTATION)
                if uid is not None:
                    yield (
                        Key(one["kind"], namespace, metadata["name"]),
                        uid,
                        {name: metadata[name] for name in IDENTITY if name in metadata},
                    )


def _by_service(secrets: Iterable[Object]) -> Iterable[list[Object]]:
    found: dict[str, list[Object]] = {}
    for secret in secrets:
        labels = secret["metadata"].get("labels") or {}
        if labels.get(CREDENTIALS_LABEL) == RENDERED and SERVICE_LABEL in labels:
            found.setdefault(labels[SERVICE_LABEL], []).append(secret)
    return found.values()
