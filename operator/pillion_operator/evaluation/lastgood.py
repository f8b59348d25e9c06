"""The last good version of a filter, kept in force while an edit of it is not accepted. Pure.

It is taken from the configuration that is rendered, so it outlives the operator.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pillion_operator.certificates.secret_store import decoded
from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.parsing import Parsed, parse
from pillion_operator.evaluation.references import FILTER
from pillion_operator.store import Key, identity_of
from pillion_sidecar.config.rendered import CorruptRevisionError, item_text, items, unpack


class LastGood:
    """The filters of a configuration, by key, as they stand in it."""

    def __init__(self, rendered: Mapping[Key, str] | None = None) -> None:
        self._rendered = rendered or {}

    def filter(self, body: Object) -> Parsed | None:
        """The version of a filter that is in force; None for a filter that was made anew since, or
        is not in force."""
        key = Key(FILTER, body["metadata"].get("namespace") or "", body["metadata"]["name"])
        item = self._rendered.get(key)
        if item is None:
            return None
        kept = json.loads(item)
        if kept["metadata"].get("uid") != identity_of(body).get("uid"):
            return None
        parsed = parse(kept)
        # As it stands there: with what it continues, and no other revision for it.
        return None if parsed.problems else replace(parsed, item=item)


def generation_of(parsed: Parsed) -> int | None:
    """The generation of a rendered filter; None where an older operator has rendered it."""
    found = json.loads(parsed.item)["metadata"].get("generation")
    return found if isinstance(found, int) else None


def filters_in(secrets: Iterable[Object], *, namespace: str) -> dict[Key, str]:
    """The filters of the configuration in rendered Secrets, as they stand in it."""
    return {
        Key(FILTER, namespace, one["metadata"]["name"]): item_text(one)
        for one in rendered_objects(secrets)
        if one.get("kind") == FILTER
    }


def rendered_objects(secrets: Iterable[Object], *, mentioning: str = "") -> list[Object]:
    """The objects of the configuration in the rendered Secrets of one service; none where no
    revision is complete, or where its text has no ``mentioning`` in it. Each has a kind and a
    name: users may write Secrets, too, and what has none is left out."""
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


def _is_object(one: Any) -> bool:
    metadata = one.get("metadata") if isinstance(one, dict) else None
    return isinstance(metadata, dict) and all(
        isinstance(text, str) for text in (one.get("kind"), metadata.get("name"))
    )
