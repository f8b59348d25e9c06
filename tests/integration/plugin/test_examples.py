"""``examples/plugins``: ``pillion plugin check`` passes on each."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.house import ROOT

EXAMPLES = ROOT / "examples" / "plugins"
#: What the example uses of Apprise, which is not among this project's dependencies.
APPRISE = """
import os
__version__ = "a stub"

class Apprise:
    def __init__(self):
        self.urls = []

    def add(self, url):
        self.urls.append(url)
        return "://" in url

    def notify(self, *, title, body, notify_type):
        with open(os.environ["PILLION_PLUGIN_NOTE"], "a") as note:
            note.write(f"{notify_type} {title}: {body[:20]!r} to {self.urls}\\n")
        return True
"""


def checked(*command: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    code = main(["plugin", "check", "--", *command])
    *lines, summary = capfd.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("pass")] == []
    assert summary.startswith("all checks passed; ")
    assert code == Exit.OK
    return lines


def test_apprise_by_a_stub_of_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "apprise.py").write_text(APPRISE, encoding="utf-8")
    note = tmp_path / "note"
    monkeypatch.setenv("PILLION_PLUGIN_NOTE", str(note))
    monkeypatch.setenv("PILLION_PLUGIN_APPRISE_URLS", "json://one mailto://two")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    plugin = str(EXAMPLES / "apprise_plugin.py")
    lines = checked("env", f"PYTHONPATH={path}", sys.executable, plugin, capfd=capfd)
    assert lines[:2] == [
        "pass  initialize: apprise a stub, 5 in flight",
        "pass  one delivery: success",
    ]
    told = "failure CIM_AlertIndication: 'Fan 3 failed' to ['json://one', 'mailto://two']"
    assert told in note.read_text().splitlines()


def test_the_shell_script_by_exec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    monkeypatch.setenv("PILLION_PLUGIN_FILE", str(file))
    pillion = (sys.executable, "-m", "pillion_cli.main")
    script = str(EXAMPLES / "append.sh")
    lines = checked(*pillion, "plugin", "exec", "--", script, capfd=capfd)
    assert lines[1] == "pass  one delivery: success"
    classes = {json.loads(line)["indication"]["class"] for line in file.read_text().splitlines()}
    assert classes == {"CIM_AlertIndication"}


def test_the_shell_script_says_what_is_wrong(tmp_path: Path) -> None:
    script = [str(EXAMPLES / "append.sh")]
    given = {"PATH": os.environ["PATH"], "PILLION_PLUGIN_FILE": str(tmp_path / "none" / "file")}
    for name, code, said in (("", 65, "without a class"), ("X", 75, "cannot write")):
        environment = given | {"PILLION_CLASS": name}
        ended = subprocess.run(
            script, input="{}", env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code
        assert said in ended.stderr.splitlines()[-1]


@pytest.mark.skipif(shutil.which("go") is None, reason="no go here")
def test_the_one_in_go(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "plugin"
    subprocess.run(
        ["go", "build", "-o", program, "."],
        cwd=EXAMPLES / "go",
        env=os.environ | {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOPROXY": "off"},
        check=True,
    )
    lines = checked(str(program), capfd=capfd)
    assert lines[:2] == [
        "pass  initialize: go-example 1, 5 in flight",
        "pass  one delivery: success",
    ]
