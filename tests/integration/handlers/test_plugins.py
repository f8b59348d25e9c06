"""Plug-ins as real processes, and their bad days: each ends in a result whose text names the
cause, and costs bounded space and time."""

import asyncio
import json
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.handlers.plugin.lines import MOST_LINES, SECONDS
from pillion_sidecar.handlers.plugin.messages import ANSWER_LIMIT, FLUSHES_HINT, MESSAGE_LIMIT
from pillion_sidecar.indication import selection_of
from pillion_sidecar.settings import PluginEndpoint
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication
from support.plugins import (
    Deliveries,
    LinkSlots,
    all_gone,
    plugged,
    plugin_destination,
    program,
    registry,
)

SUCCESS = DeliveryResult.SUCCESS
ERROR = DeliveryResult.ERROR
POST_DELIVERY_ERROR = DeliveryResult.POST_DELIVERY_ERROR


async def written(file: Path) -> str:
    """Wait until a program has written a file; it renames it when it is complete."""
    while not await asyncio.to_thread(file.exists):
        await asyncio.to_thread(os.sched_yield)
    return await asyncio.to_thread(file.read_text)


def is_running(pid: int) -> bool:
    """Whether a process exists that is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def ends(pid: int) -> bool:
    """Whether a process that was told to end does so; it may take the system a moment."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


#: Writes ``text`` to the file named by the URL's query, at once.
TELL = """
def tell(text):
    path = json.loads(first)["params"]["url"].partition("?")[2]
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path)

first = sys.stdin.readline()
send(id=0, result={"protocolVersion": 1})
"""


def told_in(folder: Path) -> tuple[Path, str]:
    """The file that :data:`TELL` writes, and the URL that names it."""
    file = folder / "told"
    return file, f"plugin://test/?{file}"


# ---------------------------------------------------------------------- what is sent


async def test_a_plug_in_gets_each_delivery_and_answers_for_it(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    file, url = told_in(tmp_path)
    text = """
for message in commands():
    answer(message, outcome="fatal", detail=json.dumps(message["params"], sort_keys=True))
"""
    given = delivery(
        indication(identifier="a-1", languages=("de", "en")),
        sequence_context="here",
        sequence_number=7,
        attempt=2,
        correlated=True,
    )
    endpoint = program(tmp_path, TELL + "tell(json.dumps([first]))" + text)
    async with plugged(endpoint, time=fake_time, destination=url, timeout_seconds=9.0) as plug:
        outcome = await plug.outcome(given)
        first = json.loads(json.loads(await written(file))[0])
    assert first == {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersions": [1],
            "destination": "a",
            "url": url,
            "service": "default",
            "timeout": 9.0,
        },
    }
    assert outcome.result is DeliveryResult.FATAL_ERROR
    assert outcome.detail.startswith('{"attempt": 2, "correlated": true, "filterName": "severe"')


async def test_the_params_of_a_delivery(fake_time: FakeTime, tmp_path: Path) -> None:
    file, url = told_in(tmp_path)
    text = """
message = read()
tell(json.dumps(message["params"]))
answer(message, outcome="success")
serve()
"""
    endpoint = program(tmp_path, TELL + text)
    body = '{"class":"CIM_AlertIndication","properties":{"Message":"Grüße\\n€ 𝄞"}}'.encode()
    async with plugged(endpoint, time=fake_time, destination=url) as plug:
        assert (await plug.outcome(delivery(indication(body)))).result is SUCCESS
        params = json.loads(await written(file))
    assert params == {
        "timeout": 30.0,
        "attempt": 1,
        "indication": json.loads(body),
        "filterName": "severe",
        "identifier": None,
        "correlated": False,
        "languages": [],
    }


async def test_a_delivery_has_the_properties_that_its_filter_lists(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    text = """
greet()
for message in commands():
    names = sorted(message["params"]["indication"]["properties"])
    answer(message, outcome="error", detail=" ".join(names))
"""
    body = b'{"class":"CIM_AlertIndication","properties":{"AlertType":5,"Message":"a"}}'
    given = indication(body)
    async with plugged(program(tmp_path, text), time=fake_time) as plug:
        listed = await plug.outcome(delivery(given, selection=selection_of(["alerttype"])))
        whole = await plug.outcome(delivery(given))
    assert (listed.detail, whole.detail) == ("AlertType", "AlertType Message")


async def test_several_commands_are_under_way_beside_each_other(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    # It answers only once it has all five, the last first.
    text = """
greet(inFlight=5)
for message in reversed([read() for _ in range(5)]):
    answer(message, outcome="success")
serve()
"""
    async with plugged(program(tmp_path, text), time=fake_time) as plug:
        outcomes = await asyncio.gather(*(plug.outcome() for _ in range(6)))
    assert {outcome.result for outcome in outcomes} == {SUCCESS}


async def test_a_large_indication_is_delivered(fake_time: FakeTime, tmp_path: Path) -> None:
    body = b'{"class":"A","properties":{"B":"%b"}}' % (b"x" * (3 << 20))
    text = """
greet()
for message in commands():
    text = message["params"]["indication"]["properties"]["B"]
    answer(message, outcome="fatal", detail=str(len(text)))
"""
    async with plugged(program(tmp_path, text), time=fake_time) as plug:
        outcome = await plug.outcome(delivery(indication(body)))
    assert outcome.detail == str(3 << 20)


async def test_an_indication_that_is_too_large_is_never_deliverable(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    body = b'{"class":"A","properties":{"B":"%b"}}' % (b"x" * MESSAGE_LIMIT)
    async with plugged(program(tmp_path, "greet(); serve()"), time=fake_time) as plug:
        outcome = await plug.outcome(delivery(indication(body)))
        assert outcome.result is DeliveryResult.FATAL_ERROR
        assert f"{MESSAGE_LIMIT} bytes" in outcome.detail
        assert (await plug.outcome()).result is SUCCESS


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ('{"outcome":"success","detail":"stored"}', DeliveryOutcome(SUCCESS, "stored")),
        ('{"outcome":"error","retryAfter":7}', DeliveryOutcome(ERROR, retry_after=7.0)),
        ('{"outcome":"error","retryAfter":1e300}', DeliveryOutcome(ERROR, retry_after=86_400.0)),
        (
            '{"outcome":"error","refusesIndication":true}',
            DeliveryOutcome(ERROR, refuses_indication=True),
        ),
        ('{"outcome":"error","detail":"a\\nb\\u0007"}', DeliveryOutcome(ERROR, "a b ")),
    ],
)
async def test_an_answer_becomes_an_outcome(
    fake_time: FakeTime, tmp_path: Path, result: str, expected: DeliveryOutcome
) -> None:
    text = f"greet(); message = read(); answer(message, **json.loads({result!r})); serve()"
    async with plugged(program(tmp_path, text), time=fake_time) as plug:
        assert await plug.outcome() == expected


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ('"result": {"outcome": "maybe"}', 'outcome is "maybe"'),
        ('"result": {}', "outcome is null"),
        ('"result": []', "its result is not an object"),
        ('"result": {"outcome": ["success"]}', "outcome is"),
        ('"result": {"outcome": "error", "detail": 7}', "detail is 7"),
        ('"result": {"outcome": "error", "retryAfter": -1}', "retryAfter is -1"),
        ('"result": {"outcome": "error", "retryAfter": true}', "retryAfter is true"),
        ('"result": {"outcome": "error", "refusesIndication": 1}', "refusesIndication is 1"),
        ('"error": {"code": -32603, "message": "no disk"}', "JSON-RPC error -32603: no disk"),
        ('"error": "no disk"', "without code and message"),
        ('"error": null', "without code and message"),
    ],
)
async def test_a_wrong_answer_is_an_error_of_this_delivery_alone(
    fake_time: FakeTime, tmp_path: Path, reply: str, words: str
) -> None:
    text = f"""
greet()
message = read()
print('{{"jsonrpc": "2.0", "id": %d, {reply}}}' % message["id"], flush=True)
serve()
"""
    async with plugged(program(tmp_path, text), time=fake_time) as plug:
        outcome = await plug.outcome()
        assert outcome.result is ERROR
        assert words in outcome.detail
        assert (await plug.outcome()).result is SUCCESS


# ---------------------------------------------------------------------- bad days


@pytest.mark.parametrize(
    ("text", "result", "words"),
    [
        ("greet(); read(); os._exit(3)", POST_DELIVERY_ERROR, "it ended with exit status 3"),
        ("greet(); read(); os.kill(0, 9)", POST_DELIVERY_ERROR, "it ended by SIGKILL"),
        (
            "greet(); read(); print('{\"json', end='', flush=True); os._exit(0)",
            POST_DELIVERY_ERROR,
            "it ended with exit status 0 in the middle of a line",
        ),
        (
            "greet(); read(); print('hello', flush=True); sleep()",
            POST_DELIVERY_ERROR,
            "not JSON: hello",
        ),
        ("greet(); m = read(); answer(m, outcome='success'); answer(m); sleep()", SUCCESS, ""),
        (
            f"greet(); read(); print('x' * {ANSWER_LIMIT + 1}, flush=True); sleep()",
            POST_DELIVERY_ERROR,
            f"a line of more than {ANSWER_LIMIT} bytes",
        ),
        (
            "greet(); read()\nwhile True: os.write(1, b'x' * 65536)",
            POST_DELIVERY_ERROR,
            f"a line of more than {ANSWER_LIMIT} bytes",
        ),
        (
            "greet(); read()\nwhile True: send(method='progress')",
            POST_DELIVERY_ERROR,
            "more than 1000 messages in 10 s that answer nothing",
        ),
        ("answer(read(), protocolVersion=2); sleep()", ERROR, "protocolVersion 2"),
        ("send(id=0, error={'code': 1, 'message': 'no'}); sleep()", ERROR, "refused initialize"),
        ("sys.exit('no such thing')", ERROR, "it ended with exit status 1: no such thing"),
        ("import no_such_module", ERROR, "No module named 'no_such_module'"),
        (
            "greet(); read(); os.close(1); sleep()",
            POST_DELIVERY_ERROR,
            "it closed its standard output",
        ),
        (
            "greet(); read(); os.close(0); sleep()",
            POST_DELIVERY_ERROR,
            "it closed its standard input",
        ),
        (
            "read(); os.close(0); send(id=0, result={'protocolVersion': 1}); sleep()",
            ERROR,
            "it closed its standard input",
        ),
        ("print('Welcome!', flush=True); sleep()", ERROR, "not JSON: Welcome!"),
    ],
)
async def test_a_bad_day_is_a_result_that_names_the_cause(
    fake_time: FakeTime, tmp_path: Path, text: str, result: DeliveryResult, words: str
) -> None:
    async with plugged(program(tmp_path, text), time=fake_time) as plug:
        told = plug.send()
        while not told.done():
            # The only time that may be needed: that for its last output.
            await asyncio.to_thread(os.sched_yield)
            # So little that a slow start of the program does not use up the link's time-out.
            fake_time.advance(0.0002)
        outcome = told.result()
    assert (outcome.result, len(plug.outcomes)) == (result, 1)
    assert words in outcome.detail


@pytest.mark.parametrize(
    ("text", "result", "words"),
    [
        ("greet(); tell_ready(); sleep()", POST_DELIVERY_ERROR, "it sent nothing within 35 s"),
        ("tell_ready(); sleep()", ERROR, "it did not answer initialize within 35 s"),
    ],
)
async def test_a_plug_in_that_never_answers_is_given_up(
    fake_time: FakeTime, tmp_path: Path, text: str, result: DeliveryResult, words: str
) -> None:
    ready = tmp_path / "ready"
    prelude = f"def tell_ready(): read(); open({str(ready)!r}, 'w').close()\n"
    async with plugged(program(tmp_path, prelude + text), time=fake_time) as plug:
        told = plug.send()
        await written(ready)
        fake_time.advance(34.9)
        assert not told.done()
        fake_time.advance(0.1)
        outcome = await told
    assert outcome.result is result
    assert outcome.detail == f"plug-in test: {words}. {FLUSHES_HINT}"


async def test_a_plug_in_that_ignores_signals_and_the_end_of_input_is_killed(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    file, url = told_in(tmp_path)
    text = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
answer(read(), outcome="success")
tell(str(os.getpid()))
while True:
    sleep()
"""
    slots = LinkSlots(timers=fake_time)
    handlers = registry({"test": program(tmp_path, TELL + text)}, time=fake_time, slots=slots)
    plug = Deliveries(handlers.create_handler(plugin_destination(destination=url)), slots)
    assert (await plug.outcome()).result is SUCCESS
    pid = int(await written(file))
    plug.handler.close()
    fake_time.advance(1.0)
    assert slots.taken == 1
    await all_gone(slots, fake_time)
    assert not await asyncio.to_thread(is_running, pid)


@pytest.mark.parametrize("own_session", [False, True])
async def test_what_a_plug_in_leaves_behind_does_not_keep_its_link(
    fake_time: FakeTime, tmp_path: Path, own_session: bool
) -> None:
    """A child keeps all pipes open: it is ended with the group, or is no longer waited for."""
    file, url = told_in(tmp_path)
    text = f"""
read()
child = os.fork()
if child == 0:
    {"os.setsid()" if own_session else "pass"}
    while True:
        sleep()
tell(str(child))
os._exit(4)
"""
    async with plugged(program(tmp_path, TELL + text), time=fake_time, destination=url) as plug:
        told = plug.send()
        child = int(await written(file))
        try:
            while not told.done():
                await asyncio.to_thread(os.sched_yield)
                fake_time.advance(0.0002)
            assert "it ended with exit status 4" in told.result().detail
            if not own_session:
                assert await asyncio.to_thread(ends, child)
        finally:
            # Its end waits for the child, whatever the test has found.
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


async def test_standard_error_goes_to_the_log_and_a_flood_is_bounded(
    fake_time: FakeTime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pillion.plugin")
    text = """
import threading
def flood():
    while True:
        os.write(2, b"x" * 5000 + b"\\n")
greet()
threading.Thread(target=flood, daemon=True).start()
serve()
"""
    async with plugged(program(tmp_path, text), time=fake_time) as plug:
        for _ in range(20):
            assert (await plug.outcome()).result is SUCCESS
        fake_time.advance(SECONDS)
        assert (await plug.outcome()).result is SUCCESS
    lines = [one for one in caplog.records if getattr(one, "event", "") == "plugin-output"]
    assert 0 < len(lines) <= 3 * MOST_LINES
    assert max(len(one.getMessage()) for one in lines) <= 1020
    assert lines[0].getMessage().startswith("plug-in test: xxx")


async def test_a_plug_in_gets_no_secret_and_no_descriptor_of_the_deliverer(
    fake_time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILLION_TOKEN", "planted-secret")
    monkeypatch.setenv("PILLION_PLUGIN_REGION", "north")
    monkeypatch.setenv("TZ", "UTC")
    file, url = told_in(tmp_path)
    text = """
own = [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid()]
tell(json.dumps([dict(os.environ), sorted(map(int, os.listdir("/proc/self/fd")))[:-1], own]))
serve()
"""
    endpoint = program(tmp_path, TELL + text)
    async with plugged(endpoint, time=fake_time, destination=url) as plug:
        assert (await plug.outcome()).result is SUCCESS
        environment, descriptors, own = json.loads(await written(file))
    assert environment["PILLION_PLUGIN_REGION"] == "north"
    assert set(environment) - {"LC_CTYPE"} <= {
        "PATH", "LANG", "TZ", "HOME", "PILLION_PLUGIN_REGION",
    }  # fmt: skip
    assert descriptors == [0, 1, 2]
    assert own == [True, True]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: "/no/such/program", "the program '/no/such/program' does not exist"),
        (lambda folder: "no-such-program", "the program 'no-such-program' does not exist in PATH"),
        (lambda folder: str(folder / "plain"), "is not executable"),
        (lambda folder: str(folder), "is a folder"),
        (lambda folder: str(folder / "garbage"), "cannot be run: Exec format error"),
    ],
)
async def test_a_program_that_cannot_be_run_holds_its_destination(
    fake_time: FakeTime, tmp_path: Path, make: Callable[[Path], str], words: str
) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "garbage").write_bytes(b"\x00\x01")
    (tmp_path / "garbage").chmod(0o755)
    endpoint = PluginEndpoint(command=(make(tmp_path),))
    async with plugged(endpoint, time=fake_time) as plug:
        outcome = await plug.outcome()
    assert (outcome.result, outcome.hold) == (DeliveryResult.FATAL_ERROR, HoldCause.PROTOCOL)
    assert outcome.detail.startswith("plug-in test: ")
    assert words in outcome.detail


async def test_another_destination_notices_nothing(fake_time: FakeTime, tmp_path: Path) -> None:
    slots = LinkSlots(timers=fake_time)
    bad = program(tmp_path, "greet(); read(); sleep()", "bad.py")
    good = program(tmp_path, "greet(); serve()", "good.py")
    handlers = registry({"bad": bad, "test": good}, time=fake_time, slots=slots)
    hung, well = (
        Deliveries(handlers.create_handler(plugin_destination(name, destination=url)), slots)
        for name, url in (("hung", "plugin://bad"), ("well", "plugin://test"))
    )
    told = hung.send()
    for _ in range(10):
        assert (await well.outcome()).result is SUCCESS
    assert not told.done()
    for one in (hung, well):
        one.handler.close()
    await all_gone(slots, fake_time)


async def test_a_link_that_is_closed_while_its_program_starts_leaves_no_process(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    async with plugged(program(tmp_path, "greet(); serve()"), time=fake_time) as plug:
        told = plug.send()
        await asyncio.sleep(0)
        plug.handler.close()
    assert not told.done()


# ---------------------------------------------------------------------- sockets


async def serve(path: Path, script: Callable[..., Any]) -> asyncio.Server:
    return await asyncio.start_unix_server(script, str(path))


async def obey(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        message = json.loads(line)
        if message["method"] == "shutdown":
            break
        result: dict[str, Any] = {"outcome": "success"}
        if message["method"] == "initialize":
            result = {"protocolVersion": 1}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        writer.write(json.dumps(answer).encode() + b"\n")
    writer.close()


async def test_a_plug_in_at_a_socket(fake_time: FakeTime, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    endpoint = PluginEndpoint(socket=path)
    server = await serve(path, obey)
    async with server, plugged(endpoint, time=fake_time) as plug:
        outcomes = await asyncio.gather(*(plug.outcome() for _ in range(5)))
    assert {outcome.result for outcome in outcomes} == {SUCCESS}


async def test_a_socket_that_hangs_up(fake_time: FakeTime, tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"json')
        writer.close()

    path = tmp_path / "socket"
    server = await serve(path, hang_up)
    async with server, plugged(PluginEndpoint(socket=path), time=fake_time) as plug:
        outcome = await plug.outcome()
    assert outcome.result is ERROR
    assert outcome.detail == "plug-in test: it closed the connection in the middle of a line"


async def test_a_socket_that_never_closes_is_closed(fake_time: FakeTime, tmp_path: Path) -> None:
    let_go = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await let_go.wait()
        writer.close()

    path = tmp_path / "socket"
    server = await serve(path, hold)
    async with server:
        async with plugged(PluginEndpoint(socket=path), time=fake_time) as plug:
            told = plug.send()
            await asyncio.sleep(0.0)
        assert not told.done()
        let_go.set()
        await asyncio.sleep(0)


async def test_a_socket_that_is_not_there_is_an_error_that_a_retry_may_mend(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    async with plugged(PluginEndpoint(socket=path), time=fake_time) as plug:
        outcome = await plug.outcome()
        assert (outcome.result, outcome.hold) == (ERROR, None)
        assert f"no connection to the socket {str(path)!r}: No such file" in outcome.detail
        async with await serve(path, obey):
            assert "starts again in 1 s" in (await plug.outcome()).detail
            fake_time.advance(1.0)
            assert (await plug.outcome()).result is SUCCESS
            plug.handler.close()
