"""``pillion publish`` sends the trace that it is given, or that of its environment."""

from pathlib import Path

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.fake_deliverer import FakeDeliverer

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
PARENT = f"00-{IDS}-01"
OTHER = f"00-{IDS[:-1]}8-01"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TRACEPARENT", "TRACESTATE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "alerts.ndjson"
    file.write_text(
        '{"class": "CIM_AlertIndication", "properties": {"IndicationIdentifier": "a"}}\n'
    )
    return file


def sent(file: Path, *options: str) -> dict[str, str]:
    """The trace in the header of the one request."""
    with FakeDeliverer() as deliverer:
        assert main(["publish", str(file), "--server", deliverer.url, *options]) == Exit.OK
        (seen,) = deliverer.published
    return {name: value for name, value in seen.headers.items() if name.startswith("trace")}


def test_without_a_trace_none_is_sent(file: Path) -> None:
    assert sent(file) == {}


def test_the_options_are_sent(file: Path) -> None:
    assert sent(file, "--traceparent", PARENT) == {"traceparent": PARENT}
    assert sent(file, "--traceparent", PARENT, "--tracestate", "congo=t61") == {
        "traceparent": PARENT,
        "tracestate": "congo=t61",
    }


def test_the_environment_is_sent_unless_an_option_says_otherwise(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", "congo=t61")
    assert sent(file) == {"traceparent": PARENT, "tracestate": "congo=t61"}
    # The state is of the other trace.
    assert sent(file, "--traceparent", OTHER) == {"traceparent": OTHER}


def test_a_wrong_environment_costs_the_trace_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACEPARENT", "00-\x1b[2J")
    monkeypatch.setenv("TRACESTATE", "congo=t61")
    assert sent(file) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pillion publish: TRACEPARENT is ignored: ")
    assert line.isprintable()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--traceparent", "00-x"], "'00-x' is not a traceparent; write 00-TRACE-SPAN-FLAGS"),
        (["--traceparent", PARENT, "--tracestate", "ü"], "printable ASCII characters"),
    ],
)
def test_a_wrong_option_is_refused(
    file: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["publish", str(file), *options])
    assert end.value.code == Exit.USAGE
    assert says in capsys.readouterr().err


def test_a_state_needs_its_parent(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", str(file), "--tracestate", "a=1"]) == Exit.USAGE
    assert "--tracestate needs --traceparent" in capsys.readouterr().err
