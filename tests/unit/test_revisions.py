"""Revisions: what takes long is done by who loads, and what has not changed stays what it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from pillion_cim.schema import Schema, load_schema
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.handlers.plugin_slots import MOST_LINKS
from pillion_sidecar.protocols import PROTOCOLS
from pillion_sidecar.revisions import Revisions
from pillion_sidecar.settings import Settings
from support.resources import alert_filter, destination, subscription, write


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema()


class Loaded:
    """Revisions of a folder."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.folder = folder
        self.current: Configuration | None = None
        self.loads: list[str] = []
        self.revisions = Revisions(
            Settings(resources=folder),
            schema=schema,
            current=lambda: self.current,
            loading=self._loading,
        )

    @contextmanager
    def _loading(self) -> Iterator[None]:
        self.loads.append("begun")
        try:
            yield
        finally:
            self.loads.append("ended")

    def write(self, url: str) -> None:
        write(self.folder, destination("ops", destination=url), alert_filter(), subscription())


@pytest.fixture
def loaded(tmp_path: Path, schema: Schema) -> Loaded:
    return Loaded(tmp_path, schema)


def routed(loaded: Loaded, configuration: Configuration) -> list[str]:
    router = loaded.revisions.router(configuration)
    targets = router.route("CIM_AlertIndication", lambda: pytest.fail("nothing is asked"), None)
    return [target.destination for target in targets]


def test_who_loads_a_revision_imports_its_handlers_alone(loaded: Loaded) -> None:
    loaded.write("http://listener:9000/")
    with patch("pillion_sidecar.handlers.registry.load_factory") as imported:
        loaded.revisions.load()
    assert [call.args for call in imported.call_args_list] == [(PROTOCOLS["CIM-XML"],)]


def test_the_routes_of_what_was_loaded_last_are_made_already(loaded: Loaded) -> None:
    loaded.write("https://listener.example/")
    configuration = loaded.revisions.load()
    assert loaded.loads == ["begun", "ended"]
    with patch("pillion_sidecar.revisions.Router", side_effect=AssertionError("made anew")):
        assert routed(loaded, configuration) == ["ops"]


def test_another_revision_gets_routes_of_its_own(loaded: Loaded) -> None:
    loaded.write("https://listener.example/")
    first = loaded.revisions.load()
    write(loaded.folder, destination("ops"), alert_filter())
    second = loaded.revisions.load()
    assert routed(loaded, first) == ["ops"]
    assert routed(loaded, second) == []


def test_routes_are_handed_over_once(loaded: Loaded) -> None:
    # Two users would share what one of them changes.
    loaded.write("https://listener.example/")
    configuration = loaded.revisions.load()
    router = loaded.revisions.router(configuration)
    assert loaded.revisions.router(configuration) is not router


def test_what_has_not_changed_is_what_it_was(loaded: Loaded) -> None:
    loaded.write("https://listener.example/")
    first = loaded.current = loaded.revisions.load()
    loaded.write("https://other.example/")
    second = loaded.revisions.load()
    assert second.subscriptions["alerts-to-ops"] is first.subscriptions["alerts-to-ops"]
    assert second.destinations["ops"].destination == "https://other.example/"


def test_a_load_that_fails_has_ended_too(loaded: Loaded) -> None:
    with pytest.raises(ConfigurationError):
        loaded.revisions.load()
    assert loaded.loads == ["begun", "ended"]


@pytest.mark.parametrize(("count", "warnings"), [(MOST_LINKS, 0), (MOST_LINKS + 1, 1)])
def test_more_destinations_of_plug_ins_than_links_are_warned_of(
    loaded: Loaded, caplog: pytest.LogCaptureFixture, count: int, warnings: int
) -> None:
    plug_ins = [
        destination(f"pager-{number}", protocol="Plugin", destination="plugin://pager")
        for number in range(count)
    ]
    write(loaded.folder, *plug_ins, alert_filter(), subscription(to="pager-0"))
    with caplog.at_level("WARNING", logger="pillion.deliverer"):
        loaded.revisions.announce(loaded.revisions.load())
    found = [one.message for one in caplog.records if "links to plug-ins" in one.message]
    assert len(found) == warnings
