"""Other versions of Spark than that of the other tests, and Spark Connect: a job publishes in every
way to a real deliverer."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.other_spark import home, run_with
from support.processes import listener_process, sidecar_process
from support.running import listener, resources

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LOCAL = "local[2]"
NOT_JSON = "1 rows of the save are no indications"
SINK = {"batch": 3, "stream": "ended", "structured stream": "ended", "wrong row": NOT_JSON}
RULES = {"rules": 2, "rules over a stream": "ended"}
NO_CONNECT = dict.fromkeys(RULES, "RuleError: rules: not with Spark Connect in this version")
#: The EventID of what each way publishes, and how often.
SENT = {
    **{way: {way: 3} for way in ("batch", "stream", "structured stream")},
    "rules": {"host.load": 2},
    # The watermark of the stream has not passed its last reading, which clears the alert.
    "rules over a stream": {"host.load": 1},
}
#: What Spark 4.0 cannot do.
OF_4_0 = {
    "structured stream": "a stream of structured rows needs pyspark 4.1 or later",
    "rules over a stream": "RuleError: rules: over a stream they need pyspark 4.1 or later",
}


@pytest.mark.parametrize(
    ("version", "remote", "expected"),
    [
        pytest.param("4.0", None, SINK | RULES | OF_4_0, id="4.0"),
        pytest.param("4.1", None, SINK | RULES, id="4.1"),
        pytest.param("4.0", LOCAL, SINK | OF_4_0 | NO_CONNECT, id="4.0-connect"),
        pytest.param("4.3", LOCAL, SINK | NO_CONNECT, id="4.3-connect"),
    ],
)
def test_a_job_publishes_or_is_told_why_not(
    version: str, remote: str | None, expected: dict[str, Any], tmp_path: Path
) -> None:
    home(version)  # or skip at once
    with (
        listener_process(tmp_path) as arriving,
        sidecar_process(tmp_path, *resources(listener("all", arriving.url))) as sidecar,
    ):
        command = [sys.executable, "-m", "support.spark_smoke", str(tmp_path), sidecar.url]
        done = run_with(version, [*command, *([remote] if remote else [])], folder=tmp_path)
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout.splitlines()[-1])
        assert results.keys() == expected.keys()
        for way, result in expected.items():
            assert str(result) in str(results[way]), way
        sent = Counter[str]()
        for way in expected.keys() & SENT.keys():
            if expected[way] in (SINK | RULES).values():
                sent.update(SENT[way])
        arriving.arrived(sent.total())
        assert Counter(one["properties"]["EventID"] for one in arriving.record()) == sent


def test_older_versions_are_refused_at_import(tmp_path: Path) -> None:
    done = run_with("3.5", [sys.executable, "-c", "import pyspark_pillion"], folder=tmp_path)
    assert "ImportError: pyspark_pillion needs pyspark 4.0 or later" in done.stderr
