"""What kopf is asked to do, and not to do: it watches."""

import kopf
import pytest

from pillion_operator.cluster.types import ResourceType
from pillion_operator.names import DRAIN_FINALIZER
from pillion_operator.watching import WATCHED, registry, watch_settings


def test_kopf_watches_every_kind_and_handles_no_change() -> None:
    handlers = registry(lambda _kind, _body: None, lambda _plural: None, configuration=lambda: None)
    assert len(handlers._watching.get_all_handlers()) == len(WATCHED)
    for unused in (handlers._changing, handlers._spawning, handlers._indexing, handlers._webhooks):
        assert unused.get_all_handlers() == []


@pytest.mark.parametrize(("kind", "selector"), WATCHED, ids=[kind.plural for kind, _ in WATCHED])
def test_the_api_server_selects_what_is_watched(kind: ResourceType, selector: str | None) -> None:
    group, _, version = kind.api_version.rpartition("/")
    resource = kopf.Resource(group=group, version=version, plural=kind.plural)
    asked = list(watch_settings().watching.label_selectors.collect(resource))
    assert asked == ([] if selector is None else [selector])


def test_kopf_takes_no_finalizer_of_ours_off() -> None:
    assert watch_settings().persistence.finalizer != DRAIN_FINALIZER


def test_kopf_writes_no_event_and_asks_for_no_peering() -> None:
    settings = watch_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone
