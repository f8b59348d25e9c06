"""Which objects continue earlier ones of their names.

Whoever deletes a custom resource definition and applies it again, with its objects, gets objects
with other uids. Deliverers know queues and subscriptions by uid, and discard what waits for a uid
that is gone. So such an object continues the earlier one: it is rendered with the uid and the
creationTimestamp of that.
"""

import asyncio
from collections.abc import Iterable

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.lastgood import rendered_objects
from pillion_operator.names import RENDERED, SERVICE_LABEL, UID_ANNOTATION
from pillion_operator.store import IDENTITY, Key, Store, uid_of
from pillion_sidecar.config.schema import CREDENTIALS_LABEL


async def recall(store: Store) -> None:
    """Take from the rendered configurations which objects continue others: an operator that was
    started since then knows it from nowhere else."""
    for namespace in store.namespaces("Secret"):
        for secrets in _by_service(store.all("Secret", namespace).values()):
            for one in rendered_objects(secrets, mentioning=UID_ANNOTATION):
                _take_up(store, one, namespace)
            # A large configuration takes a second: the Lease is renewed meanwhile.
            await asyncio.sleep(0)


def _take_up(store: Store, one: Object, namespace: str) -> None:
    metadata = one["metadata"]
    annotations = metadata.get("annotations")
    uid = annotations.get(UID_ANNOTATION) if isinstance(annotations, dict) else None
    identity = {name: metadata.get(name) for name in IDENTITY}
    if not isinstance(uid, str) or not all(isinstance(text, str) for text in identity.values()):
        return
    key = Key(one["kind"], namespace, metadata["name"])
    body = store.get(key)
    if body is not None and uid_of(body) == uid:
        store.continues(key, identity)


def _by_service(secrets: Iterable[Object]) -> list[list[Object]]:
    found: dict[str, list[Object]] = {}
    for secret in secrets:
        labels = secret["metadata"].get("labels") or {}
        if labels.get(CREDENTIALS_LABEL) == RENDERED and SERVICE_LABEL in labels:
            found.setdefault(labels[SERVICE_LABEL], []).append(secret)
    return list(found.values())
