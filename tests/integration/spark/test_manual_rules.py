"""The tutorial of rules, docs/readings-to-alerts.md, from its first line to its last."""

import io
import os
import re
from contextlib import redirect_stdout
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.fake_deliverer import FakeDeliverer
from support.house import ROOT
from support.manual import DOCS, REWRITE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = DOCS / "readings-to-alerts.md"
STEP = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<prints>.*?)```\n)?", re.DOTALL)


def test_its_steps_print_what_the_page_says(
    deliverer: FakeDeliverer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PILLION_URL", deliverer.url)
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    names: dict[str, Any] = {}

    def run(step: re.Match[str]) -> str:
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(step["code"], PAGE.name, "exec"), names)
        lines = (line.rstrip() for line in printed.getvalue().splitlines())
        shown = "".join(f"{line}\n" for line in lines if line)
        if step["prints"] is None:
            assert shown == ""
            return step[0]
        return f"```python\n{step['code']}```\n\n```text\n{shown}```\n"

    text = PAGE.read_text(encoding="utf-8")
    found = STEP.sub(run, text)
    if os.environ.get(REWRITE):
        PAGE.write_text(found, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == found
