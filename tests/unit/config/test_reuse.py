"""What has not changed is taken from the configuration before."""

from dataclasses import replace
from pathlib import Path

from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.resources import reuse
from support.resources import alert_filter, destination, subscription, write_rendered


def test_what_is_equal_is_the_same_object_and_what_is_not_is_new(tmp_path: Path) -> None:
    common = (alert_filter(), destination("kept"), subscription("s", "kept"))
    write_rendered(tmp_path, *common, destination("changed"), destination("gone"))
    before = load_folder(tmp_path)
    changed = destination("changed", timeoutSeconds=7)
    rendered = write_rendered(tmp_path, *common, changed, destination("new"))
    loaded = load_folder(tmp_path)
    after = reuse(loaded, before)
    assert after == loaded
    assert after.revision == rendered.revision
    assert after.destinations["kept"] is before.destinations["kept"]
    assert after.filters["alerts"] is before.filters["alerts"]
    assert after.subscriptions["s"] is before.subscriptions["s"]
    assert [*after.destinations] == [*loaded.destinations]
    assert after.destinations["changed"].timeout_seconds == 7.0


def test_the_first_configuration_is_taken_as_it_is(tmp_path: Path) -> None:
    write_rendered(tmp_path, alert_filter())
    loaded = load_folder(tmp_path)
    assert reuse(loaded, None) is loaded
    assert reuse(loaded, replace(loaded, filters={})) == loaded
