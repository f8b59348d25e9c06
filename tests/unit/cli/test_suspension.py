"""Where ``pillion suspend`` and ``resume`` change a file, and where not."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cli.exits import CommandError, Exit
from pillion_cli.main import main
from pillion_cli.suspension import edited, kubectl, of_full_queue, put_back, replace
from pillion_sidecar.wire.queues import Moment, QueueDetails
from support.other_server import OtherServer, answer_to
from support.queue_answers import NOW, waiting

BLOCK = """\
# The pager.
apiVersion: pillion.dev/v1alpha1
kind: ListenerDestination
metadata: {name: pager}
spec:
  # Its port.
  destination: "http://127.0.0.1:5990/"
  protocol: CIM-XML   # as it is
---
apiVersion: pillion.dev/v1alpha1
kind: ListenerDestination
metadata:
    name: siem
spec:
    destination: "http://127.0.0.1:5991/"
    suspended: false  # until noon
    protocol: CIM-XML
"""
FIRST = 'destination: "http://127.0.0.1:5990/"'
WINDOWS = BLOCK.replace("\n", "\r\n")


def file_of(folder: Path, text: str, name: str = "resources.yaml") -> Path:
    file = folder / name
    file.write_bytes(text.encode())
    return file


@pytest.mark.parametrize(
    ("text", "name", "wanted", "before", "after"),
    [
        (BLOCK, "pager", True, f"  {FIRST}", f"  suspended: true\n  {FIRST}"),
        (BLOCK, "siem", True, "suspended: false  #", "suspended: true  #"),
        (BLOCK.replace("false", "true"), "siem", False, "suspended: true", "suspended: false"),
        (BLOCK.replace("false", "FALSE"), "siem", True, "suspended: FALSE", "suspended: true"),
        (
            '{"kind": "ListenerDestination", "metadata": {"name": "a"}, "spec": {"protocol": "x"}}',
            "a",
            True,
            '"spec": {',
            '"spec": {"suspended": true, ',
        ),
        (
            "{kind: ListenerDestination, metadata: {name: a}, spec: {protocol: x}}",
            "a",
            True,
            "spec: {",
            "spec: {suspended: true, ",
        ),
        (
            "kind: List\nitems:\n- kind: ListenerDestination\n  metadata: {name: a}\n"
            "  spec:\n    protocol: x\n",
            "a",
            True,
            "    protocol",
            "    suspended: true\n    protocol",
        ),
        (WINDOWS, "pager", True, f"  {FIRST}", f"  suspended: true\r\n  {FIRST}"),
        ("\ufeff" + BLOCK, "siem", True, "suspended: false", "suspended: true"),
    ],
)  # fmt: skip
def test_one_field_is_changed_and_nothing_else(
    tmp_path: Path, text: str, name: str, wanted: bool, before: str, after: str
) -> None:
    file = file_of(tmp_path, text)
    edit = edited(tmp_path, name, wanted=wanted)
    replace(edit)
    assert file.read_bytes().decode() == text.replace(before, after, 1)
    put_back(edit)
    assert file.read_bytes().decode() == text
    assert os.listdir(tmp_path) == [file.name]


@given(st.text(alphabet="abc \u00e9\U0001f4a5#'\":{}[],-", max_size=20))
def test_whatever_stands_before_it_the_place_is_right(
    tmp_path_factory: pytest.TempPathFactory, comment: str
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    text = f"# {comment}\n{BLOCK}"
    file_of(folder, text)
    assert edited(folder, "siem", wanted=True).after == text.replace(
        "suspended: false", "suspended: true"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: [\n", "it is not YAML"),
        ("kind: ListenerDestination\nmetadata: {name: pager}\n", "has no spec"),
        (f"{BLOCK}---\n&a a: *a\n", "by hand"),
        ("kind: IndicationFilter\nmetadata: {name: pager}\n", "no file of"),
    ],
)
def test_what_cannot_be_changed_safely_is_left(tmp_path: Path, text: str, told: str) -> None:
    file = file_of(tmp_path, text)
    with pytest.raises(CommandError, match=told):
        edited(tmp_path, "pager", wanted=True)
    assert file.read_text() == text


def test_a_file_that_changes_meanwhile_is_left(tmp_path: Path) -> None:
    file = file_of(tmp_path, BLOCK)
    edit = edited(tmp_path, "siem", wanted=True)
    file.write_text("# other\n")
    with pytest.raises(CommandError, match="changed meanwhile"):
        replace(edit)
    assert file.read_text() == "# other\n"
    assert os.listdir(tmp_path) == [file.name]


def test_a_link_stays_and_rights_stay(tmp_path: Path) -> None:
    real, folder = tmp_path / "real", tmp_path / "folder"
    real.mkdir()
    folder.mkdir()
    file = file_of(real, BLOCK)
    file.chmod(0o640)
    (folder / "link.yaml").symlink_to(file)
    replace(edited(folder, "siem", wanted=True))
    assert (folder / "link.yaml").is_symlink()
    assert "suspended: true" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"depth": 3}, ""),
        ({"depth": 3, "first_loss_due_time": Moment(NOW + 60)}, ""),
        ({"depth": 9}, "its queue is full, so publishers are refused: raise queueSize of siem"),
        (
            {"first_loss_due_time": Moment(NOW), "accepted_per_second": 10.04, **waiting(9)},
            "its queue is full: each new indication discards the oldest, now 10 a second; raise its"
            " queueSize, or see docs/runbook.md#stop-the-loss",
        ),
        (
            {"first_loss_due_time": Moment(NOW), "accepted_per_second": 0.0, **waiting(9)},
            "its queue is full: each new indication discards the oldest; raise its queueSize, or"
            " see docs/runbook.md#stop-the-loss",
        ),
    ],
)
def test_a_suspended_destination_tells_what_its_full_queue_does(
    members: dict[str, Any], told: str
) -> None:
    usual = {"capacity": 9, "high_water": 9, "suspended": True}
    oldest = waiting(9, depth=9)
    assert of_full_queue(QueueDetails(name="siem", **{**usual, **oldest, **members})) == told


def test_a_command_for_kubernetes_says_the_same() -> None:
    assert kubectl("siem", wanted=True) == (
        "kubectl patch listenerdestination siem --type merge"
        ' --patch \'{"spec":{"suspended":true}}\''
    )


@pytest.mark.parametrize(
    ("problem", "seconds", "says"),
    [
        (None, 0.0, "so it reads another folder"),
        ("wrong", 0.0, "it does not accept its folder: pillion validate"),
        (None, 0.8, "it was stopped or is slow, since one answer took 0.8 s"),
    ],
)
def test_a_change_that_is_not_taken_up_is_undone_with_its_cause(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problem: str | None,
    seconds: float,
    says: str,
) -> None:
    text = "kind: ListenerDestination\nmetadata: {name: siem}\nspec:\n  protocol: CIM-XML\n"
    file = tmp_path / "siem.yaml"
    file.write_text(text)
    now = 0.0

    def sleep(pause: float) -> None:
        nonlocal now
        now += pause

    def answer(path: str) -> bytes:
        nonlocal now
        document = answer_to(path)
        is_changed = "suspended" in file.read_text()
        if path.startswith("/v1/status"):
            told = problem if is_changed else None
            document = {**document, "resources": str(tmp_path), "configurationProblem": told}
        elif is_changed:
            now += seconds
        return json.dumps(document).encode()

    monkeypatch.setattr("pillion_cli.suspension.time.monotonic", lambda: now)
    monkeypatch.setattr("pillion_cli.suspension.time.sleep", sleep)
    with OtherServer(answer) as server:
        assert main(["suspend", "siem", "--timeout", "2", "--server", server.url]) == Exit.FAILED
    assert says in capsys.readouterr().err
    assert file.read_text() == text
