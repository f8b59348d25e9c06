"""What getting started says that a command prints, it prints."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.house import ROOT
from support.listening import listening
from support.running import running

PAGE = (ROOT / "docs" / "getting-started.md").read_text()
EXAMPLE = ROOT / "examples" / "first-subscription"


def example(listener: str) -> list[Any]:
    """The resources of the page, with another listener."""
    found = [yaml.safe_load(file.read_bytes()) for file in sorted(EXAMPLE.glob("*.yaml"))]
    for document in found:
        if document["kind"] == "ListenerDestination":
            document["spec"]["destination"] = listener
    return found


async def test_the_first_publish_prints_what_the_page_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((lines, command, printed),) = re.findall(
        r"cat > alerts\.ndjson <<'END'\n(.*?)END\npillion (publish alerts\.ndjson .*?)\n```.*?"
        r"The command prints\n\n```text\n(.*?)```",
        PAGE,
        re.DOTALL,
    )
    resources = tmp_path / "resources"
    resources.mkdir()
    alerts = tmp_path / "alerts.ndjson"
    alerts.write_text(lines)
    arguments = command.replace("alerts.ndjson", str(alerts)).split()
    async with listening() as operations:
        async with running(resources, *example(operations.url)) as run:
            to = ("--to", run.deliverer.intake_url)
            assert await asyncio.to_thread(main, [*arguments, *to]) == Exit.OK
        assert operations.identifiers == ["a-1"]
    assert capsys.readouterr().out == printed
