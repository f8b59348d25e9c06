"""A folder that holds a rendered configuration, as a pod mounts it."""

import os
from pathlib import Path

import pytest

from pillion_sidecar.config.loader import MOST_PART_BYTES, is_followed_file, load_folder, snapshot
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.rendered import pack, render, render_items
from support.resources import (
    JSON,
    alert_filter,
    destination,
    secret,
    service,
    subscription,
    write,
    write_rendered,
)

COMPLETE: tuple[JSON, ...] = (
    service("nightly", queueSize=77),
    alert_filter(),
    destination(credentials={"bearer": {"secretRef": {"name": "siem", "key": "token"}}}),
    secret("siem", {"token": "hush"}),
    subscription(serviceRef={"name": "nightly"}),
)


def problems(folder: Path) -> tuple[Problem, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_folder(folder, service="nightly")
    assert "hush" not in str(caught.value)
    return caught.value.problems


def test_a_rendered_configuration_says_what_the_folder_of_files_says(tmp_path: Path) -> None:
    for name in ("files", "rendered", "text"):
        (tmp_path / name).mkdir()
    rendered = write_rendered(tmp_path / "rendered", *COMPLETE, part_size=200)
    assert len(rendered.files) > 1
    write(tmp_path / "files", *COMPLETE)
    (tmp_path / "text" / "configuration.json").write_text(render(COMPLETE))
    loaded = load_folder(tmp_path / "rendered", service="nightly")
    assert loaded.revision == rendered.revision
    assert loaded.warnings == ()
    for folder in ("files", "text"):
        other = load_folder(tmp_path / folder, service="nightly")
        assert other.destinations == loaded.destinations
        assert (other.service, other.filters) == (loaded.service, loaded.filters)
        assert other.subscriptions == loaded.subscriptions


def test_the_keys_of_tokens_beside_a_rendered_configuration_are_nobodys_business(
    tmp_path: Path,
) -> None:
    write_rendered(tmp_path, *COMPLETE)
    (tmp_path / "token-keys.json").write_text('{"keys": []}')
    assert load_folder(tmp_path).warnings == ()
    assert not is_followed_file("token-keys.json")


def test_files_beside_a_rendered_configuration_are_ignored_and_named(tmp_path: Path) -> None:
    write_rendered(tmp_path, *COMPLETE)
    (tmp_path / "operator-token").write_text("token")
    write(tmp_path, destination("other"), file="z.yaml")
    loaded = load_folder(tmp_path)
    assert [*loaded.destinations] == ["ops"]
    (warning,) = loaded.warnings
    assert "z.yaml is ignored" in warning


def test_parts_without_the_rest_are_incomplete(tmp_path: Path) -> None:
    rendered = write_rendered(tmp_path, *COMPLETE, part_size=200)
    (tmp_path / rendered.files[1][0]).unlink()
    with pytest.raises(ConfigurationError) as caught:
        load_folder(tmp_path, service="nightly")
    (problem,) = caught.value.problems
    assert problem.reason == "Incomplete"
    assert rendered.files[0][0] in problem.message
    assert caught.value.incomplete
    assert caught.value.absent


def test_an_empty_folder_is_absent_but_a_missing_one_is_not(tmp_path: Path) -> None:
    for folder, absent in ((tmp_path, True), (tmp_path / "missing", False)):
        with pytest.raises(ConfigurationError) as caught:
            load_folder(folder, service="nightly")
        assert caught.value.absent is absent
        assert not caught.value.incomplete


@pytest.mark.parametrize("newest", [0, 1])
def test_of_two_complete_revisions_the_newest_by_file_time_is_taken(
    tmp_path: Path, newest: int
) -> None:
    both = [pack(render((*COMPLETE, destination(name)))) for name in ("one", "two")]
    for number, rendered in enumerate(both):
        for name, content in rendered.files:
            (tmp_path / name).write_bytes(content)
            age = 100 if number == newest else 200
            os.utime(tmp_path / name, (10_000 - age, 10_000 - age))
    loaded = load_folder(tmp_path)
    assert loaded.revision == both[newest].revision
    (warning,) = loaded.warnings
    assert both[1 - newest].revision in warning
    assert "newest" in warning


def test_what_is_wrong_in_it_is_said_at_once_with_the_revision(tmp_path: Path) -> None:
    rendered = write_rendered(
        tmp_path, *COMPLETE, destination("bad", timeoutSeconds=0), alert_filter("x", query="SELECT")
    )
    found = problems(tmp_path)
    assert {problem.resource for problem in found} == {
        "ListenerDestination/bad",
        "IndicationFilter/x",
    }
    assert {problem.file for problem in found} == {f"revision {rendered.revision}"}


def test_a_resource_that_stands_there_twice_is_named_without_a_line(tmp_path: Path) -> None:
    rendered = write_rendered(tmp_path, *COMPLETE, alert_filter())
    (problem,) = problems(tmp_path)
    assert problem.message == f"is already used at revision {rendered.revision}"


def test_a_damaged_revision_is_corrupt(tmp_path: Path) -> None:
    name, content = write_rendered(tmp_path, *COMPLETE).files[0]
    for damaged in (content[:-9], b"", bytes(MOST_PART_BYTES + 1)):
        (tmp_path / name).write_bytes(damaged)
        (problem,) = problems(tmp_path)
        assert problem.reason == "Corrupt"


@pytest.mark.parametrize("text", ["", "{}", render_items(["{"]), render_items(["[" * 100_000])])
def test_a_text_that_is_no_configuration_is_corrupt(tmp_path: Path, text: str) -> None:
    for name, content in pack(text).files:
        (tmp_path / name).write_bytes(content)
    (problem,) = problems(tmp_path)
    assert problem.reason == "Corrupt"


def test_a_snapshot_sees_the_parts_and_nothing_beside_them(tmp_path: Path) -> None:
    rendered = write_rendered(tmp_path, *COMPLETE)
    before = snapshot(tmp_path)
    assert [entry[0] for entry in before] == [name for name, _ in rendered.files]
    (tmp_path / "operator-token").write_text("token")
    assert snapshot(tmp_path) == before
    write_rendered(tmp_path, *COMPLETE, destination("new"))
    assert snapshot(tmp_path) != before
