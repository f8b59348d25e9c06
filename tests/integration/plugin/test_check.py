"""``pillion plugin check`` on plug-ins that do well, and on bad ones."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main
from pillion_cli.plugin.checks import CHECKS, Plan, run_checks
from pillion_cli.plugin.peer import ProcessPeer, SocketPeer
from pillion_sidecar.handlers.plugin.messages import FLUSHES_HINT, PRINTS_HINT
from pillion_sidecar.handlers.plugin.process import plugin_environment
from support.small_plugin import GOOD_DELIVER, GOOD_INITIALIZE, small_plugin


def failures(command: list[str], *checks: str, timeout: float = 5.0) -> dict[str, str]:
    """What fails of initialize and these checks, or of all."""
    made = {name: CHECKS[name] for name in ("initialize", *checks)} if checks else CHECKS
    plan = Plan(
        connect=lambda: ProcessPeer(command),
        timeout=timeout,
        url="plugin://check",
        margin=timeout,
        grace=timeout,
        quiet=0.05,
    )
    return {one.check: one.detail for one in run_checks(plan, made) if not one.passed}


def test_a_good_plug_in_passes_each_check_with_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugin", "check", "--", *small_plugin(tmp_path)]) == Exit.OK
    lines = capfd.readouterr().out.splitlines()
    assert lines == [
        "pass  initialize: small 1, 2 in flight",
        "pass  one delivery: success",
        "pass  several in flight: 2 at once: success",
        "pass  large indication: 3145728 bytes: success",
        "pass  Unicode: success",
        "pass  unknown method: error -32601, then success",
        "pass  unknown notification: no answer, then success",
        "pass  malformed line: no answer, then success",
        "pass  short time-out: 0.5 s: success",
        "pass  shutdown: exit code 0",
        "pass  end of input: exit code 0",
        "all checks passed; 11 of 11 deliveries were a success",
    ]


def test_a_plug_in_that_delivers_nothing_passes_and_the_summary_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deliver = 'result({"outcome": "error", "detail": "busy"})'
    assert main(["plugin", "check", "--", *small_plugin(tmp_path, deliver=deliver)]) == Exit.OK
    *_, last = capfd.readouterr().out.splitlines()
    assert last == "all checks passed; 0 of 11 deliveries were a success: see the details"


def test_a_failed_check_is_in_the_summary(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = small_plugin(tmp_path, other='result("what?")')
    assert main(["plugin", "check", "--", *command]) == Exit.FAILED
    *_, last = capfd.readouterr().out.splitlines()
    assert last == "1 of 11 checks failed; 10 of 10 deliveries were a success"


def test_name_and_version_may_be_left_out(tmp_path: Path) -> None:
    command = small_plugin(tmp_path, initialize="result({'protocolVersion': 1})")
    assert failures(command, "one delivery") == {}


def test_a_failed_check_is_told_with_what_was_expected_and_what_came(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = small_plugin(tmp_path, other='result("what?")')
    code = main(["plugin", "check", "--output", "json", "--", *command])
    assert code == Exit.FAILED
    results = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [one["check"] for one in results] == list(CHECKS)
    assert [one for one in results if not one["passed"]] == [
        {
            "check": "unknown method",
            "passed": False,
            "detail": "expected an error with code and message; "
            'came {"jsonrpc": "2.0", "id": 2, "result": "what?"}',
        }
    ]


@pytest.mark.parametrize(
    ("parts", "came"),
    [
        ({"begin": "sys.exit(3)"}, "came exit code 3"),
        ({"begin": "write('hello\\n')"}, f"a line that is not JSON: hello. {PRINTS_HINT}"),
        ({"begin": "write('x' * 70000)"}, "expected lines of at most 65536 bytes; came xxx"),
        ({"initialize": "failed(-1, 'no')"}, "expected a result of initialize; came {"),
        ({"initialize": "result({'protocolVersion': 2})"}, "expected protocolVersion 1; came"),
        (
            {"initialize": "result({'protocolVersion': 1, 'version': 2})"},
            "expected name and version to be strings",
        ),
        (
            {"initialize": GOOD_INITIALIZE.replace('"inFlight": 2', '"inFlight": 6')},
            "expected inFlight from 1 to 5",
        ),
        ({"initialize": "id = 77; " + GOOD_INITIALIZE}, 'expected an answer to id 1; came {"jsonr'),
        ({"initialize": "write('{\"jsonrpc\":'); os._exit(9)"}, "came exit code 9"),
    ],
)
def test_without_a_good_initialize_the_other_checks_are_not_made(
    tmp_path: Path, parts: dict[str, str], came: str
) -> None:
    ((check, detail),) = failures(small_plugin(tmp_path, **parts)).items()
    assert check == "initialize"
    assert came in detail


def test_a_plug_in_that_ignores_initialize_fails_in_bounded_time(tmp_path: Path) -> None:
    found = failures(small_plugin(tmp_path, initialize="pass"), timeout=0.5)
    assert found == {
        "initialize": f"expected an answer to id 1; came nothing within 1 s. {FLUSHES_HINT}"
    }


@pytest.mark.parametrize("part", ["initialize", "deliver"])
def test_a_plug_in_that_floods_with_notifications_fails_at_once(tmp_path: Path, part: str) -> None:
    parts = {part: 'while True: say(method="log", params={"message": "x" * 600})'}
    (detail,) = failures(small_plugin(tmp_path, **parts), "one delivery", timeout=20).values()
    assert detail == "expected at most 1000 messages in 10 s that answer nothing; came more"


def test_a_plug_in_that_floods_after_an_answer_fails(tmp_path: Path) -> None:
    flood = f'{GOOD_INITIALIZE}\n        while True: say(method="progress")'
    plan = Plan(
        connect=lambda: ProcessPeer(small_plugin(tmp_path, initialize=flood)),
        timeout=5,
        url="plugin://x",
        quiet=20,
    )
    (result,) = run_checks(plan)
    assert result.detail.endswith("messages in 10 s that answer nothing; came more")


def test_messages_without_an_answer_are_named(tmp_path: Path) -> None:
    command = small_plugin(tmp_path, deliver='say(method="progress")')
    assert failures(command, "one delivery", timeout=1)["one delivery"] == (
        "expected an answer to id 2; came only messages that answer nothing, within 2 s"
    )


@pytest.mark.parametrize("answer", ["", f"{GOOD_DELIVER}; "])
@pytest.mark.parametrize(
    ("fault", "came"),
    [
        ("os.close(0); time.sleep(60)", "came a closed standard input"),
        (
            "os.fork() and os._exit(3); time.sleep(60)",
            "came exit code 3, while another process keeps its output open",
        ),
    ],
)
def test_a_fault_that_leaves_the_output_open_is_named(
    tmp_path: Path, answer: str, fault: str, came: str
) -> None:
    command = small_plugin(tmp_path, deliver=answer + fault)
    plan = Plan(connect=lambda: ProcessPeer(command), timeout=20, url="plugin://x", quiet=20)
    (result,) = run_checks(plan, {"one delivery": CHECKS["one delivery"]})
    expected = "that it runs on" if answer else "an answer to id 2"
    assert result.detail == f"expected {expected}; {came}"


@pytest.mark.parametrize(
    ("deliver", "came"),
    [
        (f"{GOOD_DELIVER}; {GOOD_DELIVER}", "expected no further answer; came"),
        ("id += 1; " + GOOD_DELIVER, "expected an answer to id 2; came"),
        ('result({"outcome": "maybe"})', "expected outcome success, error, fatal; came"),
        ('result({"outcome": "error", "detail": 1})', "expected detail, a string; came"),
        ('result({"outcome": "error", "retryAfter": -1})', "expected retryAfter, seconds from 0"),
        (
            'say(id=id, result={"outcome": "success"}, error={"code": 1, "message": "m"})',
            "came a line that is no message of JSON-RPC 2.0: {",
        ),
        (
            'result({"outcome": "error", "retryAfter": 1e999})',
            "came a line that is not JSON: {",
        ),
        (
            """write('{"jsonrpc":"2.0","id":2,"result":{"retryAfter":1e999}}\\n')""",
            "came a line with a number that is out of range: {",
        ),
        ("os._exit(4)", "expected an answer to id 2; came exit code 4"),
        ("write('done\\n')", "came a line that is not JSON: done"),
        (
            r'result({"detail": "a\ud800b"})',
            r'Unicode: {"jsonrpc": "2.0", "id": 2, "result": {"detail": "a\ud800b"}}',
        ),
    ],
)
def test_a_bad_answer_to_a_delivery_is_found(tmp_path: Path, deliver: str, came: str) -> None:
    assert came in failures(small_plugin(tmp_path, deliver=deliver), "one delivery")["one delivery"]


def test_text_of_a_plug_in_does_nothing_to_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deliver = r"""result({"outcome": "error", "detail": "\x1b[31mred\n"})"""
    assert main(["plugin", "check", "--", *small_plugin(tmp_path, deliver=deliver)]) == Exit.OK
    assert r"pass  one delivery: error (\u001b[31mred\u000a)" in capfd.readouterr().out.splitlines()


def test_a_plug_in_that_never_answers_fails_in_bounded_time(tmp_path: Path) -> None:
    found = failures(small_plugin(tmp_path, deliver="pass"), timeout=0.3)
    assert found["one delivery"] == (
        f"expected an answer to id 2; came nothing within 0.6 s. {FLUSHES_HINT}"
    )
    assert set(found) == {"one delivery"}


def test_a_plug_in_that_fails_at_its_first_delivery_is_tried_no_further(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = small_plugin(tmp_path, deliver="os._exit(4)")
    assert main(["plugin", "check", "--", *command]) == Exit.FAILED
    assert capfd.readouterr().out.splitlines() == [
        "pass  initialize: small 1, 2 in flight",
        "FAIL  one delivery: expected an answer to id 2; came exit code 4",
        "1 of 2 checks failed; the other 9 were not tried; 0 of 0 deliveries were a success",
    ]


@pytest.mark.parametrize(
    ("parts", "check", "came"),
    [
        ({"malformed": "os._exit(1)"}, "malformed line", "came exit code 1"),
        ({"malformed": "id = None; result(1)"}, "malformed line", "expected an error with code"),
        ({"notification": "result(1)"}, "unknown notification", 'came {"jsonrpc": "2.0", "id": nu'),
        ({"other": "pass"}, "unknown method", "came nothing within"),
        ({"other": "failed(-1, 'what')"}, "unknown method", "expected error -32601; came"),
        ({"shutdown": "time.sleep(60)"}, "shutdown", "came nothing within"),
        ({"end": "time.sleep(60)"}, "end of input", "came nothing within"),
        ({"shutdown": "sys.exit(1)"}, "shutdown", "expected exit code 0; came exit code 1"),
        ({"end": "os.kill(os.getpid(), 9)"}, "end of input", "expected exit code 0; came exit"),
        ({"end": "os.close(1); time.sleep(60)"}, "end of input", "it still runs"),
        # A child that keeps the pipe open.
        ({"begin": "if os.fork() == 0: time.sleep(60)"}, "end of input", "another process keeps"),
        ({"deliver": f"if len(line) < 65536: {GOOD_DELIVER}"}, "large indication", "came nothing"),
    ],
)
def test_a_bad_day_is_found_by_its_check(
    tmp_path: Path, parts: dict[str, str], check: str, came: str
) -> None:
    assert came in failures(small_plugin(tmp_path, **parts), check, timeout=1)[check]


def test_a_plug_in_that_reads_nothing_fails_in_bounded_time(tmp_path: Path) -> None:
    # Of the large indication it reads what Python reads ahead.
    parts = {"deliver": f"{GOOD_DELIVER}; time.sleep(60)"}
    found = failures(
        small_plugin(tmp_path, **parts), "one delivery", "several in flight", timeout=1
    )
    assert set(found) == {"several in flight"}


def test_progress_a_log_and_a_request_of_the_plug_in_are_taken(tmp_path: Path) -> None:
    deliver = (
        'say(method="progress"); say(method="log", params={"level": "info", "message": "x"}); '
        f'say(id="own", method="ask"); {GOOD_DELIVER}'
    )
    note = tmp_path / "note"
    other = f'failed(-32601, "no") if method else open({str(note)!r}, "w").write(line)'
    assert failures(small_plugin(tmp_path, deliver=deliver, other=other), "one delivery") == {}
    assert json.loads(note.read_text())["error"]["code"] == -32601


@pytest.mark.parametrize("own_id", ['"own"', "77", "None"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_plug_in_that_ends_by_the_answer_to_its_request_fails(
    tmp_path: Path, own_id: str, is_first: bool
) -> None:
    ask = f'say(id={own_id}, method="ask")'
    deliver = "; ".join([ask, GOOD_DELIVER] if is_first else [GOOD_DELIVER, ask])
    command = small_plugin(
        tmp_path, deliver=deliver, notification="os._exit(7)", other="os._exit(7)"
    )
    plan = Plan(connect=lambda: ProcessPeer(command), timeout=5, url="plugin://x", quiet=50)
    (result,) = run_checks(plan, {"one delivery": CHECKS["one delivery"]})
    assert result.detail == "expected that it runs on; came exit code 7"


def test_a_socket_that_nobody_serves_fails_with_the_cause(tmp_path: Path) -> None:
    plan = Plan(
        connect=lambda: SocketPeer(tmp_path / "none.sock", within=1), timeout=1, url="plugin://x"
    )
    (result,) = run_checks(plan)
    assert result.as_text() == "FAIL  initialize: expected a link; came No such file or directory"


def test_a_socket_that_hangs_up_fails_with_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "plug.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        peer = SocketPeer(path, within=5)
        connection, _ = listening.accept()
        connection.close()
        plan = Plan(connect=lambda: peer, timeout=5, url="plugin://x")
        (result,) = run_checks(plan)
    assert result.as_text() == ("FAIL  initialize: expected an answer to id 1; came it hung up")


def test_a_plug_in_gets_of_the_environment_what_a_deliverer_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILLION_PLUGIN_X", "1")
    monkeypatch.setenv("PILLION_TOKEN", "secret")
    note = tmp_path / "note"
    begin = f'open({str(note)!r}, "w").write(json.dumps(dict(os.environ)))'
    assert failures(small_plugin(tmp_path, begin=begin), "one delivery") == {}
    # Python may set it in itself.
    got = {
        name: value for name, value in json.loads(note.read_text()).items() if name != "LC_CTYPE"
    }
    assert got == plugin_environment(os.environ)
    assert got["PILLION_PLUGIN_X"] == "1"
    assert "PILLION_TOKEN" not in got


def test_the_command_may_have_options_and_dashes_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = [*small_plugin(tmp_path, begin='assert sys.argv[1:] == ["--", "-x", "--help"]')]
    assert main(["plugin", "check", "--", *program, "--", "-x", "--help"]) == Exit.OK
    assert "FAIL" not in capfd.readouterr().out
    assert sys.executable == program[0]
