"""State that a restarted operator reads from the rendered configurations.

The last good version of a filter stays in force while an edit of it is not accepted. After a
definition is deleted and applied again, objects get other uids; deliverers would discard the queue
of a missing uid, so such an object is rendered with its earlier uid and creationTimestamp.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pillion_operator.certificates.secret_store import decoded
from pillion_operator.cluster.types import Object, labels_of
from pillion_operator.evaluation.judging import Judge, object_problems
from pillion_operator.evaluation.namespace import Namespace, Parsed, parse
from pillion_operator.evaluation.references import FILTER
from pillion_operator.names import RENDERED, SERVICE_LABEL, UID_ANNOTATION
from pillion_operator.store import IDENTITY, Key, Store, identity_of, key_of, uid_of
from pillion_sidecar.config.rendered import CorruptRevisionError, item_text, items, unpack
from pillion_sidecar.config.schema import CREDENTIALS_LABEL


def last_good_filter(body: Object, rendered: Mapping[Key, str]) -> Parsed | None:
    """The rendered version of a filter; None without one, or if it was created anew since."""
    item = rendered.get(key_of(body))
    if item is None:
        return None
    last = json.loads(item)
    if last["metadata"].get("uid") != identity_of(body).get("uid"):
        return None
    parsed = parse(last)
    # The same text, so that the revision stays the same.
    return None if parsed.problems else replace(parsed, item=item)


def has_version(
    key: Key, rendered: Mapping[Key, str], *, namespace: Namespace, judge: Judge
) -> bool:
    """Whether an existing filter is valid, or an earlier version of it is rendered."""
    body = namespace.body(key.kind, key.name)
    assert body is not None
    problems = object_problems(key.kind, key.name, namespace=namespace, judge=judge)
    return not problems or last_good_filter(body, rendered) is not None


def generation_of(parsed: Parsed) -> int | None:
    """None if an older operator has rendered it."""
    found = json.loads(parsed.item)["metadata"].get("generation")
    return found if isinstance(found, int) else None


def filters_in(rendered: Iterable[Object], *, namespace: str) -> dict[Key, str]:
    return {
        Key(FILTER, namespace, one["metadata"]["name"]): item_text(one)
        for one in rendered
        if one.get("kind") == FILTER
    }


def rendered_objects(secrets: Iterable[Object], *, mentioning: str = "") -> list[Object]:
    """The objects in the rendered Secrets of one service; none without a complete revision, or
    without ``mentioning`` in its text. Skips objects without kind or name: users can write Secrets
    too."""
    files: dict[str, bytes] = {}
    for secret in secrets:
        files.update(decoded(secret))
    try:
        found = unpack(files)
        if found is None or mentioning not in found.text:
            return []
        return [one for one in items(found.text) if _is_object(one)]
    except (CorruptRevisionError, ValueError):
        return []


def was_rendered(service: Object | None) -> bool:
    """Whether its status says that it once had a configuration."""
    return bool(((service or {}).get("status") or {}).get("revision"))


def _is_object(one: Any) -> bool:
    metadata = one.get("metadata") if isinstance(one, dict) else None
    return isinstance(metadata, dict) and all(
        isinstance(text, str) for text in (one.get("kind"), metadata.get("name"))
    )


async def recall(store: Store) -> None:
    """Restore which objects continue others; only the rendered configurations have it."""
    for namespace in store.namespaces("Secret"):
        for secrets in _by_service(store.all("Secret", namespace).values()):
            for one in rendered_objects(secrets, mentioning=UID_ANNOTATION):
                _restore(store, one, namespace)
            # A large configuration takes a second; let the Lease be renewed.
            await asyncio.sleep(0)


def _restore(store: Store, one: Object, namespace: str) -> None:
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
        labels = labels_of(secret)
        if labels.get(CREDENTIALS_LABEL) == RENDERED and SERVICE_LABEL in labels:
            found.setdefault(labels[SERVICE_LABEL], []).append(secret)
    return list(found.values())
