"""What ``pillion doctor`` makes of a deliverer's answers, and of the ways to destinations."""

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest
import trustme

from pillion_cli.doctor import (
    check_clock,
    check_configuration,
    check_history,
    check_journal,
    check_queue,
    check_queues,
    check_stores,
)
from pillion_cli.findings import Finding, Level, finding_lines, ok, problem, warning
from pillion_cli.terminal import Output
from pillion_cli.ways import Ways
from pillion_sidecar.wire.diagnosis import (
    DelivererStatus,
    Endpoint,
    HistoryStatus,
    JournalStatus,
    StoresStatus,
    StoreStatus,
)
from pillion_sidecar.wire.queues import (
    HoldStatus,
    KeptFilter,
    Moment,
    QueuePage,
    SubscriptionEnd,
)
from support.queue_answers import NOW, failing, told, waiting

JOURNAL = JournalStatus(
    folder="/journal",
    total_bytes=100,
    pending_bytes=10,
    maximum_pending_bytes=100,
    free_bytes=50,
    volume_bytes=100,
    is_full=False,
    damaged=0,
)
LOST = {"last_discard_time": Moment(NOW), "discarded": {"queue-full": 583}}
HISTORY = HistoryStatus(is_on_disk=True, last=7, unkept_discards=0, is_behind=False)
STATUS = DelivererStatus(
    version="0.1.0",
    time=datetime.datetime.fromtimestamp(NOW, datetime.UTC),
    revision="r1",
    configuration_problem=None,
    warnings=[],
    resources="/resources",
    is_rendered=False,
    durability="Disk",
    journal=JOURNAL,
    history=HISTORY,
    pending=0,
)

ENDED = SubscriptionEnd(name="s", reason="Expired")


def changed(**values: Any) -> DelivererStatus:
    return msgspec.structs.replace(STATUS, **values)


@pytest.mark.parametrize(
    ("before", "after", "level", "text"),
    [
        (NOW - 1, NOW + 1, Level.OK, "as this machine's"),
        (NOW - 30, NOW + 1, Level.OK, "as this machine's"),
        (NOW + 1, NOW + 1.5, Level.OK, "as this machine's"),
        (NOW + 5, NOW + 6, Level.WARNING, "5 s behind this machine's"),
        (NOW - 300, NOW - 290, Level.PROBLEM, "4 min ahead of this machine's"),
    ],
)
def test_clocks_are_compared_within_the_time_of_the_request(
    before: float, after: float, level: Level, text: str
) -> None:
    found = check_clock(STATUS, before=before, after=after)
    assert found.level is level
    assert text in found.text


def test_a_start_that_waits_is_not_taken_for_missing_resources() -> None:
    status = changed(starting="it waits for b (refused)", revision=None, journal=None)
    page = QueuePage(queues=[], starting="it waits for b (refused)")
    told = [(one.level, one.check, one.text) for one in check_configuration(status, page)]
    assert told == [
        (Level.PROBLEM, "start", "nothing is delivered yet: it waits for b (refused)"),
        (Level.WARNING, "configuration", "none is in force yet"),
    ]
    journal = check_journal(status)
    assert (journal.level, journal.text) == (Level.WARNING, "it is not read yet")


@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        ({}, Level.OK, "10% of its limit is pending; 0.0 GB (50%) of its volume are free"),
        ({"pending_bytes": 50}, Level.WARNING, "50% of its limit"),
        ({"pending_bytes": 90}, Level.PROBLEM, "90% of its limit"),
        ({"is_full": True}, Level.PROBLEM, "its volume is full"),
        ({"free_bytes": 9}, Level.WARNING, "(9%) of its volume are free"),
        ({"free_bytes": None}, Level.OK, "the space of its volume is unknown"),
        ({"damaged": 2}, Level.WARNING, "2 records are damaged"),
    ],
)
def test_the_journal(changes: dict[str, Any], level: Level, text: str) -> None:
    found = check_journal(changed(journal=msgspec.structs.replace(JOURNAL, **changes)))
    assert found.level is level
    assert text in found.text
    assert bool(found.remedy) == (level is not Level.OK)


UP, DOWN = {}, {"is_up": False, "problem": "refused"}


@pytest.mark.parametrize(
    ("unstable", "members", "level", "text"),
    [
        (0, [UP, UP], Level.OK, "all 2 are up; 0.0 MB of the journal are in too few stores, 10.0"),
        (0, [UP, {"behind_bytes": 2000}], Level.OK, "all 2 are up; 1 lacks 2,000 bytes; 0.0 MB"),
        (8_000_000, [UP, UP], Level.WARNING, "8.0 MB of the journal are in too few"),
        (0, [UP, DOWN], Level.WARNING, "enough are up, but not 1 (refused); 0.0 MB"),
        (
            9_000_000,
            [{**DOWN, "is_missed": True}, {"is_up": False, "is_missed": True}, UP],
            Level.PROBLEM,
            "nothing becomes stable without 0 (refused), 1 (no answer yet); 9.0 MB",
        ),
    ],
)
def test_the_stores(unstable: int, members: list[dict[str, Any]], level: Level, text: str) -> None:
    values = {"is_up": True, "is_missed": False, "behind_bytes": 0, "problem": None}
    stores = [StoreStatus(**{"name": str(at), **values, **one}) for at, one in enumerate(members)]
    found = check_stores(
        StoresStatus(unstable_bytes=unstable, flight_size_bytes=10_000_000, members=stores)
    )
    assert found.level is level
    assert text in found.text
    assert bool(found.remedy) == (level is not Level.OK)


def test_a_lease_that_has_lapsed_is_a_problem() -> None:
    down = StoreStatus(name="one", is_up=False, is_missed=True, behind_bytes=0, problem="refused")
    status = StoresStatus(unstable_bytes=0, flight_size_bytes=1, lease_seconds=0, members=[down])
    found = check_stores(status)
    assert found.level is Level.PROBLEM
    assert found.text.startswith(
        "nothing is delivered, since too few stores answer (fencing Lease)"
    )
    held = msgspec.structs.replace(status, lease_seconds=3.5)
    assert "nothing becomes stable" in check_stores(held).text


def test_stores_that_the_next_start_takes_are_told() -> None:
    values = {"is_up": True, "is_missed": False, "behind_bytes": 0, "problem": None}
    found = check_stores(
        StoresStatus(
            unstable_bytes=0,
            flight_size_bytes=1,
            members=[StoreStatus(name="a", **values)],
            is_changed=True,
        )
    )
    assert found.level is Level.WARNING
    assert "the service names others since the start" in found.text


def test_no_journal_is_told_with_the_durability() -> None:
    found = check_journal(changed(journal=None, durability="Memory"))
    assert (found.level, found.text) == (Level.OK, "none on disk (durability Memory)")


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, Level.OK),
        ({"is_on_disk": False}, Level.OK),
        ({"is_behind": True}, Level.WARNING),
        ({"unkept_discards": 3}, Level.WARNING),
        ({"given_way": 3}, Level.WARNING),
        ({"problem": "No space left on device", "waiting": 3}, Level.WARNING),
    ],
)
def test_the_history(changes: dict[str, Any], level: Level) -> None:
    assert check_history(msgspec.structs.replace(HISTORY, **changes)).level is level


@pytest.mark.parametrize(
    ("changes", "text", "do"),
    [
        (
            {"unkept_discards": 2},
            "7 outcomes so far, on disk; 2 discards are not in it any more",
            "raise history.maximumBytes or maximumAgeSeconds",
        ),
        (
            {"unkept_discards": 2, "given_way": 3},
            "7 outcomes so far, on disk; 3 were dropped, since its disk was full; 2 discards are "
            "not in it any more",
            "free space on the disk of the history, or enlarge it",
        ),
        (
            {"problem": "No space left on device", "waiting": 3},
            "7 outcomes so far, on disk; 3 wait in memory, since it cannot be written: No space "
            "left on device",
            "free space on the disk of the history, or repair it; they are written by themselves",
        ),
    ],
)
def test_what_is_not_in_the_history_has_its_cause(
    changes: dict[str, Any], text: str, do: str
) -> None:
    found = check_history(msgspec.structs.replace(HISTORY, **changes))
    assert (found.text, found.remedy) == (text, do)


@pytest.mark.parametrize(
    ("changes", "page", "levels", "text"),
    [
        ({}, {}, [Level.OK], "revision r1 of /resources is in force"),
        ({"revision": None}, {}, [Level.PROBLEM], "none is loaded"),
        (
            {"configuration_problem": "a.yaml:3: wrong"},
            {},
            [Level.PROBLEM],
            "revision r1 stays in force: a.yaml:3: wrong",
        ),
        ({"warnings": ["w"]}, {}, [Level.OK, Level.WARNING], "revision r1"),
        (
            {},
            {"kept_filters": [KeptFilter(name="f", problem="p")]},
            [Level.OK, Level.WARNING],
            "revision r1",
        ),
        (
            {},
            {"ended_subscriptions_count": 1, "ended_subscriptions": [ENDED]},
            [Level.OK, Level.WARNING],
            "revision r1",
        ),
    ],
)
def test_the_configuration(
    changes: dict[str, Any], page: dict[str, Any], levels: list[Level], text: str
) -> None:
    found = list(check_configuration(changed(**changes), QueuePage(queues=[], **page)))
    assert [one.level for one in found] == levels
    assert text in found[0].text


def test_a_rendered_configuration_is_mended_in_kubernetes() -> None:
    status = changed(configuration_problem="wrong", is_rendered=True)
    (found,) = check_configuration(status, QueuePage(queues=[]))
    assert found.remedy == "kubectl describe"


@pytest.mark.parametrize(
    ("queue", "level", "remedy"),
    [
        (told(), Level.OK, ""),
        (failing(), Level.PROBLEM, ""),
        (failing(suspended=True), Level.WARNING, "pillion resume"),
        (told(suspended=True, depth=9, capacity=9), Level.PROBLEM, "pillion resume"),
        (
            told(suspended=True, first_loss_due_time=Moment(NOW), **LOST),
            Level.PROBLEM,
            "pillion resume",
        ),
        (told(first_loss_due_time=Moment(NOW), **LOST), Level.PROBLEM, "`pillion test siem`"),
        (
            failing(hold=HoldStatus(cause="disabled", message="m", since=Moment(NOW))),
            Level.PROBLEM,
            "correct the resource",
        ),
    ],
)
def test_each_queue_in_trouble_has_what_to_do(queue: Any, level: Level, remedy: str) -> None:
    found = check_queue(queue, now=NOW)
    assert found.level is level
    assert found.remedy.startswith(remedy)
    assert bool(found.remedy) == (level is not Level.OK)


@pytest.mark.parametrize(
    ("why", "do"),
    [("certificate has expired", "renew"), ("its subjectAltName must hold", "tls.serverName")],
)
def test_a_certificate_for_another_name_has_a_remedy_of_its_own(why: str, do: str) -> None:
    found = check_queue(failing(cause="certificate", detail=why), now=NOW)
    assert do in found.remedy
    assert f"{why}; 1 pending" in found.text


@pytest.mark.parametrize(
    ("queue", "text", "remedy"),
    [
        (
            failing(first_loss_due_time=Moment(NOW + 300), **waiting(9)),
            "failing for 60 s: HTTP 503; 5 pending; first loss in 5 min",
            "shows why",
        ),
        (
            told(suspended=True, first_loss_due_time=Moment(NOW), **LOST),
            "suspended: its resource has suspended: true; 583 discarded, the last 0 s ago;"
            " 0 pending; loses indications now",
            "until then stop the loss: docs/runbook.md#stop-the-loss",
        ),
        (
            told(suspended=True, depth=9, capacity=9),
            "suspended: full; publishers are refused; its resource has suspended: true; 9 pending",
            "until then raise queueSize, or accept losses with another queueFullPolicy",
        ),
    ],
)
def test_a_queue_is_told_in_the_words_of_the_queues(queue: Any, text: str, remedy: str) -> None:
    found = check_queue(queue, now=NOW)
    assert found.text == text
    assert found.remedy.endswith(remedy)


def test_the_worst_queue_comes_first() -> None:
    losing = told("b", suspended=True, first_loss_due_time=Moment(NOW), **waiting(9, **LOST))
    found = check_queues([failing("a"), losing], now=lambda: NOW)
    assert [one.check for one in found] == ["queue of b", "queue of a"]


# ---------------------------------------------------------------------- lines

FINDINGS = [
    ok("a", "fine"),
    problem("b", "bad \x1b[31m" + "x " * 60, "mend it"),
    warning("c", "so"),
]


def test_a_pipe_has_a_line_for_each_the_worst_first() -> None:
    lines = list(finding_lines(FINDINGS, Output()))
    assert [line.split()[0] for line in lines] == ["problem", "warning", "ok", "1"]
    assert "\\u001b[31m" in lines[0]
    assert lines[0].endswith("; do: mend it")
    assert lines[-1] == "1 problem, 1 warning, 1 ok"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_terminal_has_no_line_that_is_too_long(width: int) -> None:
    lines = list(finding_lines(FINDINGS, Output(width=width, height=24)))
    assert max(map(len, lines)) <= width
    assert "         do: mend it" in lines


# ---------------------------------------------------------------------- ways


@contextmanager
def listening(context: ssl.SSLContext | None) -> Iterator[int]:
    """A listener that takes one connection; the port."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            if context is not None:
                with suppress(OSError):
                    context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def way(endpoint: Endpoint, *, now: float | None = None) -> Finding:
    at = datetime.datetime.now(datetime.UTC).timestamp() if now is None else now
    return Ways(5.0, monotonic=lambda: 0.0, now=lambda: at).check(endpoint)


def to(port: int, **values: Any) -> Endpoint:
    return Endpoint(
        **{"destination": "siem", "protocol": "CIM-XML", "host": "127.0.0.1", "port": port} | values
    )


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def serving(authority: trustme.CA, **given: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", **given).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


@pytest.mark.parametrize(
    ("days", "level"), [(90, Level.OK), (20, Level.WARNING), (3, Level.PROBLEM)]
)
def test_the_days_of_a_certificate_are_told(authority: trustme.CA, days: int, level: Level) -> None:
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days, hours=1)
    with listening(serving(authority, not_after=end)) as port:
        found = way(to(port, tls="tls", ca=trusting(authority)))
    assert found.level is level
    assert f"the certificate ends in {days} d" in found.text
    assert "TLSv1.3" in found.text


@pytest.mark.parametrize(
    ("changes", "level", "text", "do"),
    [
        ({}, Level.PROBLEM, "the certificate is not accepted here", "tls.caSecretRef"),
        ({"server_name": "other.example"}, Level.PROBLEM, "for 'other.example'", "tls.serverName"),
        ({"server_name": "10.1.2.3"}, Level.PROBLEM, "for '10.1.2.3'", "tls.serverName"),
        ({"verify": False}, Level.WARNING, "(tls.insecureSkipVerify)", "tls.caSecretRef"),
    ],
)
def test_a_certificate_that_is_not_trusted(
    authority: trustme.CA, changes: dict[str, Any], level: Level, text: str, do: str
) -> None:
    ca = trusting(authority) if "server_name" in changes else None
    with listening(serving(authority)) as port:
        found = way(to(port, tls="tls", ca=ca, **changes))
    assert found.level is level
    assert text in found.text
    assert not found.text.endswith(".")
    assert do in found.remedy


def test_a_listener_without_tls_and_wrong_authorities_are_problems() -> None:
    with listening(None) as port:
        found = way(to(port, tls="tls"))
    assert (found.level, "handshake fails" in found.text) == (Level.PROBLEM, True)
    with listening(None) as port:
        found = way(to(port, tls="tls", client_certificate=True))
    assert found.level is Level.WARNING
    with listening(None) as port:
        found = way(to(port, tls="tls", ca="no PEM"))
    assert "CA certificates are not valid" in found.text


def test_ways_without_tls() -> None:
    for changes in ({}, {"tls": "starttls"}):
        with listening(None) as port:
            found = way(to(port, **changes))
        assert (found.level, "connected in" in found.text) == (Level.OK, True)
    with listening(None) as port:
        found = way(to(9, host="nowhere.invalid", tls="tls", proxy=f"127.0.0.1:{port}"))
    assert (found.level, "the proxy" in found.text) == (Level.OK, True)


def test_a_way_that_ends(unused_tcp_port: int) -> None:
    found = way(to(unused_tcp_port))
    assert (found.level, "no connection from here" in found.text) == (Level.PROBLEM, True)
    found = way(to(80, host="nowhere.invalid"))
    assert (found.level, "cannot be resolved here" in found.text) == (Level.PROBLEM, True)
    found = way(to(80, host="x" * 300))
    assert found.level is Level.PROBLEM


def test_what_has_no_way_is_told_with_the_reason() -> None:
    found = way(Endpoint(destination="hook", protocol="CloudEvents", note="its URL is in a Secret"))
    assert (found.level, found.text) == (Level.OK, "not checked: its URL is in a Secret")
    assert "UDP" in way(to(162, datagrams=True)).text
