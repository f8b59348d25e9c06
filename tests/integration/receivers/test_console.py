"""The console in a real Chromium: every view and button, by keyboard, narrow and in the dark."""

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
from selenium.webdriver.common.keys import Keys

from pillion_cli.queue_states import ORDERS, judged
from pillion_cli.units import duration
from pillion_sidecar.wire.queues import (
    HoldStatus,
    Moment,
    OutcomeStatus,
    QueueStatus,
    RateLimitStatus,
)
from support.browser import CONTRAST, Browser, browser
from support.console import ScriptedApi, scripted_api
from support.processes import listener_process, sidecar_process
from support.queue_answers import NOW, failing, told, waiting
from support.resources import JSON
from support.running import alert, listener, resources

pytestmark = pytest.mark.timeout(180)

#: Markup, an escape sequence of a terminal, and a reversal of the writing direction.
HOSTILE = "<img src=x onerror=\"document.title='taken'\">\x1b[31m\u202egnp.exe' onclick=1 </td>"
ESCAPED = HOSTILE.replace("\x1b", "\\u001b").replace("\u202e", "\\u202e")
LONG = "identifier-" * 25
ROWS = "#queues tbody tr"


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def page(started: Browser) -> Iterator[Browser]:
    """A browser that has nothing to complain of."""
    started.resize(1280)
    yield started
    started.driver.get("about:blank")
    assert started.complaints() == []


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with scripted_api() as api:
        yield api


def _opened(page: Browser, api: ScriptedApi, fragment: str = "#/") -> None:
    page.open(f"{api.url}/console{fragment}")
    page.until("document.getElementById('link').textContent === 'Live'")


def _refreshed(page: Browser, api: ScriptedApi) -> None:
    """Wait until the page shows what is answered from now on."""
    before = api.answered
    # The second answer comes after the first one was shown.
    while api.answered < before + 2:
        page.until("true")


def _outcome(number: int, **members: Any) -> JSON:
    return {
        "number": number,
        "time": "2026-11-22T09:14:15.595000Z",
        "result": "discarded",
        "destination": "siem",
        "subscription": "all-to-siem",
        "class": "CIM_AlertIndication",
        "acceptedTime": "2026-11-22T09:00:00Z",
        **members,
    }


# ---------------------------------------------------------------------- what it shows


STATES = [
    told("a"),
    failing("b"),
    failing("c", depth=0, last_result=OutcomeStatus(result="fatal-error", detail="HTTP 400")),
    told("d", hold=HoldStatus(cause="certificate", message="expired", since=Moment(NOW - 90))),
    told("e", pause=HoldStatus(cause="circuit-breaker", since=Moment(NOW - 90))),
    told("f", in_flight=1, last_attempt_time=Moment(NOW - 18)),
    failing("g", in_flight=1, last_attempt_time=Moment(NOW - 18)),
    told("h", suspended=True, depth=5),
    told("i", **waiting(30, high_water=50)),
    told("j", draining=True, depth=1),
    told("k", rate_limit=RateLimitStatus(per_second=5, burst=10, limiting=True), depth=3),
    told("l", **waiting(9, high_water=50)),
    failing("m", depth=3, first_loss_due_time=Moment(NOW + 80_000)),
    told("n", suspended=True, depth=9, capacity=9),
    told(
        "o",
        suspended=True,
        first_loss_due_time=Moment(NOW),
        last_discard_time=Moment(NOW - 1),
        discarded={"queue-full": 3},
    ),
]


def _at_present(queue: QueueStatus, now: float) -> QueueStatus:
    """The same queue, with times as far from ``now`` as they were from NOW."""
    moved = {
        name: Moment(value - NOW + now)
        for name in queue.__struct_fields__
        if isinstance(value := getattr(queue, name), Moment)
    }
    for name in ("hold", "pause"):
        hold = getattr(queue, name)
        if hold is not None and hold.since is not None:
            moved[name] = msgspec.structs.replace(hold, since=Moment(hold.since - NOW + now))
    return msgspec.structs.replace(queue, **moved)


def test_its_states_and_their_order_are_those_of_the_command(
    page: Browser, api: ScriptedApi
) -> None:
    now = datetime.now(UTC).timestamp()
    queues = [_at_present(queue, now) for queue in STATES]
    api.show(*queues)
    _opened(page, api)
    found = sorted((judged(queue, now=now) for queue in queues), key=ORDERS["trouble"])
    shown = list(zip(page.texts(f"{ROWS} th"), page.texts(f"{ROWS} .state"), strict=True))
    assert shown == [(one.queue.name, str(one.state)) for one in found]
    causes = dict(zip(page.texts(f"{ROWS} th"), page.texts(f"{ROWS} td:nth-child(3)"), strict=True))
    assert (causes["b"], causes["c"]) == (
        "HTTP 503",
        "fatal-error: HTTP 400; nothing waits, so nothing is tried",
    )
    assert (causes["d"], causes["e"]) == ("certificate: expired", "circuit-breaker")
    assert causes["n"] == "full; publishers are refused; its resource has suspended: true"
    assert page.text("#banner") == (
        "o is suspended and loses indications now: its resource has suspended: true."
        " 11 of 15 destinations have trouble."
    )
    assert page.text("#loss") == (
        "First loss now, at o. Publishers are refused, since the queue of n is full."
    )


def test_rates_a_slow_listener_and_the_first_loss_are_shown(
    page: Browser, api: ScriptedApi
) -> None:
    now = datetime.now(UTC).timestamp()
    loss = {"first_loss_due_time": Moment(now + 7_260), "first_loss_reason": "lifetime-expired"}
    slow = told("warehouse", depth=42_950, **loss)
    rates = {"acceptedPerSecond": 500.0, "deliveredPerSecond": 9.96}
    api.show(slow, **rates, slowSince=str(Moment(now - 300)))
    _opened(page, api)
    assert page.text("#banner") == ("warehouse is slow: 500 a second arrive, 10 are delivered.")
    assert page.text("#loss") == "First loss in 2 h, at warehouse: lifetime-expired."
    (row,) = page.run(
        "return [...document.querySelectorAll(arguments[0])].map((row) =>"
        " [...row.cells].map((cell) => cell.innerText.trim()))",
        ROWS,
    )
    assert row[3:] == ["5 min", "42.9 K / 1 M", "500", "10", "", "in 2 h"]


def test_the_next_attempt_counts_down_without_a_request(page: Browser, api: ScriptedApi) -> None:
    due = Moment(datetime.now(UTC).timestamp() + 100)
    api.show(failing(next_attempt_time=due))
    _opened(page, api)
    cell = "document.querySelector('#queues td:nth-child(8)').textContent"
    seen = {page.run(f"return {cell}")}
    while len(seen) < 3:
        seen.add(page.until(f"!{json.dumps(sorted(seen))}.includes({cell}) && {cell}"))
    assert all(text.startswith("in 9") or text == "in 100 s" for text in seen)


def test_what_is_wrong_with_the_configuration_is_told(page: Browser, api: ScriptedApi) -> None:
    api.page = {
        "revision": None,
        "keptFilters": [{"name": "alerts", "problem": "line 3: no such property"}],
        "endedSubscriptions": [{"name": "to-siem", "state": "Disabled", "reason": "FatalError"}],
    }
    _opened(page, api)
    assert page.text("#banner") == "No destinations are configured."
    assert page.texts("#notes li") == [
        "No configuration is in force yet.",
        "Filter alerts: its edit is wrong, and the last good version stays in force:"
        " line 3: no such property",
        "Subscription to-siem has ended: Disabled, FatalError",
    ]


def test_what_strangers_write_is_text_and_nothing_else(page: Browser, api: ScriptedApi) -> None:
    api.show(failing(detail=HOSTILE, **waiting(20)))
    api.queues[0] |= {"name": HOSTILE, "frontIdentifiers": [HOSTILE]}
    kept = {"class": HOSTILE, "properties": {"Message": HOSTILE}}
    same = {"identifier": HOSTILE, "destination": HOSTILE, "source": HOSTILE, "detail": HOSTILE}
    api.outcomes = [_outcome(1, indication=kept, **same)]
    _opened(page, api)
    assert page.text(f"{ROWS} th") == ESCAPED
    assert ESCAPED in page.text("#banner")
    assert ESCAPED in page.text(f"{ROWS} td:nth-child(3)")
    page.run("document.querySelector(arguments[0]).click()", f"{ROWS} a")
    page.until("document.querySelector('#discards tbody tr')")
    assert page.text("#name") == ESCAPED
    assert page.text("#discards td:nth-child(2)") == ESCAPED
    page.run("document.querySelector('#discards button').click()")
    page.until("document.getElementById('body').open")
    assert json.loads(page.text("#body pre"))["class"].count("\x1b") == 1
    assert "\\u202e" in page.text("#body pre")
    page.press(Keys.ESCAPE)
    page.run("document.querySelector('#discards a').click()")
    page.until("document.querySelector('#way tbody tr')")
    assert page.text("#sought") == ESCAPED
    assert page.run("return document.querySelectorAll('img, td td, [onclick]').length") == 0
    assert "taken" not in page.driver.title.split(" ")


def test_the_page_of_a_destination_begins_with_what_is_lost(
    page: Browser, api: ScriptedApi
) -> None:
    now = datetime.now(UTC).timestamp()
    lost = {"last_discard_time": Moment(now - 150), "discarded": {"queue-full": 3}}
    due = {"first_loss_due_time": Moment(now + 7_260), "first_loss_reason": "queue-full"}
    api.show(failing("siem", **due, **lost))
    _opened(page, api, "#/destination/siem")
    page.until("document.getElementById('lost').textContent")
    assert page.run("return document.getElementById('actions').checkVisibility()")
    assert page.text("#lost") == "First loss in 2 h: queue-full. 3 discarded, the last 2 min ago."


def test_a_setting_has_the_same_duration_as_in_the_command(page: Browser, api: ScriptedApi) -> None:
    retry = {"intervalSeconds": 90, "maximumIntervalSeconds": 300, "backoff": "Exponential"}
    lifetime = {"indicationLifetimeSeconds": 86_400, "retry": {"attempts": None, **retry}}
    api.show(told("siem"), **lifetime)
    _opened(page, api, "#/destination/siem")
    page.until("document.querySelector('#facts dd')")
    facts = dict(zip(page.texts("#facts dt"), page.texts("#facts dd"), strict=True))
    assert facts["Lifetime"] == "1 d"
    assert facts["Retry"] == "no limit of retries, 1 min 30 s apart, doubling to 5 min"
    seconds = [1, 59, 60, 3_599, 3_600, 7_500, 90_000, 86_399, 10**12]
    shown = page.run("return arguments[0].map(duration)", seconds)
    assert shown == [duration(one) for one in seconds]


@pytest.mark.parametrize("fragment", ["#/destination/%ff", "#/destination/nobody"])
def test_an_unknown_destination_is_said_to_be_unknown(
    page: Browser, api: ScriptedApi, fragment: str
) -> None:
    page.open(f"{api.url}/console{fragment}")
    page.until("document.getElementById('state').textContent.startsWith('no destination')")
    assert not page.run("return document.getElementById('actions').checkVisibility()")
    (complaint,) = page.complaints()
    assert "404" in complaint


# ---------------------------------------------------------------------- many, and live


def _many(count: int) -> list[QueueStatus]:
    return [
        failing(f"d-{number:05}", depth=number)
        if number % 10 == 0
        else told(f"d-{number:05}", depth=number)
        for number in range(count)
    ]


def test_a_thousand_destinations_are_shown_filtered_and_refreshed_in_place(
    page: Browser, api: ScriptedApi
) -> None:
    api.show(*_many(1_000))
    _opened(page, api)
    names = page.texts(f"{ROWS} th")
    assert (len(names), names[:2], names[100]) == (1_000, ["d-00990", "d-00980"], "d-00999")
    page.run(
        "scrollTo(0, 5000); getSelection().selectAllChildren(document.querySelector(arguments[0]))",
        f"{ROWS}:nth-child(150) th",
    )
    page.run(
        "document.querySelector(arguments[0]).focus({preventScroll: true})",
        f"{ROWS}:nth-child(7) a",
    )
    page.run("window.row = document.activeElement")
    # Another order, and other numbers.
    api.show(*[msgspec.structs.replace(queue, depth=5_000 - queue.depth) for queue in _many(1_000)])
    _refreshed(page, api)
    assert page.run("return [scrollY, document.activeElement === row]") == [5000, True]
    assert page.run("return getSelection().toString()").strip() == names[149]
    page.run("getSelection().removeAllRanges()")
    page.until(f"document.querySelector('{ROWS} th').textContent === 'd-00000'")
    assert page.run("return document.activeElement === row")
    page.run("document.getElementById('filter').focus()")
    page.press("d-0012")
    assert len(page.texts(f"{ROWS} th")) == 10
    assert page.text("#count") == "10 of 1,000"
    _refreshed(page, api)
    assert page.run("return [document.activeElement.id, document.activeElement.value]") == [
        "filter",
        "d-0012",
    ]
    page.press(Keys.TAB, Keys.SPACE)
    assert page.texts(f"{ROWS} th") == ["d-00120"]


def test_of_more_the_worst_are_shown_and_all_are_found(page: Browser, api: ScriptedApi) -> None:
    api.show(*_many(2_500))
    _opened(page, api)
    assert page.text("#banner").endswith("250 of 2,500 destinations have trouble.")
    assert (len(page.texts(f"{ROWS} th")), page.text("#count")) == (
        1_000,
        "the worst 1,000 of 2,500",
    )
    page.run("document.getElementById('filter').focus()")
    page.press("d-00001")
    assert page.texts(f"{ROWS} th") == ["d-00001"]


def test_a_busy_deliverer_leaves_what_is_shown_and_a_refusal_is_told(
    page: Browser, api: ScriptedApi
) -> None:
    api.show(failing())
    _opened(page, api)
    api.refusal = HTTPStatus.FORBIDDEN
    page.until("document.getElementById('banner').textContent === 'Forbidden'")
    api.refusal = None
    page.until("document.getElementById('banner').textContent.startsWith('siem fails')")
    assert all("403" in complaint for complaint in page.complaints())


def test_without_an_answer_it_says_so_and_goes_on_with_the_next_run(
    page: Browser, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    options = ("--intake", address, "--journal", str(tmp_path / "journal"))
    documents = resources(listener("siem", "http://127.0.0.1:1/"))
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with sidecar_process(tmp_path / "first", *documents, options=options) as first:
        first.publish(alert("a"), query="source=test&ack=durable")
        page.open(f"{first.url}/console")
        page.until("document.getElementById('banner').textContent.startsWith('siem fails')")
        first.kill()
    page.until("document.getElementById('link').textContent.startsWith('The deliverer has not')")
    assert page.run("return document.body.className") == "away"
    assert page.text("#banner").startswith("siem fails")
    documents = resources(
        listener("siem", "http://127.0.0.1:1/"), listener("two", "http://127.0.0.1:1/")
    )
    with sidecar_process(tmp_path / "second", *documents, options=options):
        page.until("document.getElementById('link').textContent === 'Live'")
        page.until(f"document.querySelectorAll('{ROWS}').length === 2")
        page.driver.get("about:blank")
    assert all("ERR_CONNECTION_REFUSED" in one for one in page.complaints())


# ---------------------------------------------------------------------- buttons


def _press(page: Browser, action: str) -> None:
    page.tab_to(f"[data-action={action}]")
    page.press(Keys.ENTER)
    page.until("document.getElementById('ask').open")
    assert page.focused.get_attribute("id") == "no"


def _confirm(page: Browser, action: str, said: str) -> None:
    """Press a button, leave it, press it again, confirm it, and wait for what came of it."""
    _press(page, action)
    page.press(Keys.ENTER)
    page.until("!document.getElementById('ask').open")
    _press(page, action)
    page.tab_to("#yes")
    page.press(Keys.ENTER)
    page.until(f"document.getElementById('done').textContent === {json.dumps(said)}")
    assert page.focused.get_attribute("data-action") == action


def test_each_button_asks_twice_and_says_what_came_of_it_by_keyboard(
    page: Browser, tmp_path: Path
) -> None:
    with listener_process(tmp_path) as receiver:
        receiver.behave(status=503)
        documents = resources(listener("siem", receiver.url))
        options = ("--journal", str(tmp_path / "journal"))
        with sidecar_process(tmp_path, *documents, options=options) as sidecar:
            sidecar.publish(*(alert(f"a-{number}") for number in range(4)))
            page.open(f"{sidecar.url}/console")
            page.until(f"document.querySelector('{ROWS} .state')?.textContent === 'failing'")
            page.tab_to(f"{ROWS} a")
            page.press(Keys.ENTER)
            page.until("document.querySelector('#attempts tbody tr')")
            _confirm(page, "retry", "siem: the next attempt is made now.")
            page.until("document.querySelectorAll('#attempts tbody tr').length === 2")
            _confirm(page, "skip", "siem: discarded a-0.")
            _confirm(page, "purge", "siem: 3 indications discarded.")
            page.until("document.querySelectorAll('#discards tbody tr').length === 4")
            assert sidecar.queue("siem")["discarded"] == {"purged": 4}
            assert page.texts("#discards td:nth-child(2)") == ["a-3", "a-2", "a-1", "a-0"]
            receiver.behave()
            page.tab_to("[aria-label='Redrive a-2 at siem']")
            page.press(Keys.ENTER)
            page.until("document.getElementById('ask').open")
            page.tab_to("#yes")
            page.press(Keys.ENTER)
            page.until("document.getElementById('done').textContent === 'siem: 1 redriven.'")
            page.run("document.querySelector('[data-action]').focus()")
            _confirm(page, "redrive", "siem: 3 redriven; left out: 1 redriven already.")
            receiver.arrived(4)
            page.until("document.querySelectorAll('#outcomes td:nth-child(4)').length === 12")
            page.tab_to("#discards a[href='#/search/a-1']")
            page.press(Keys.ENTER)
            page.until("document.querySelectorAll('#way tbody tr').length === 3")
            assert page.text("#summary") == "3 outcomes: 1 delivered, 1 discarded, 1 redriven."
            # Nothing is missed any more.
            assert page.run("return document.getElementById('summary').dataset.state") == "ok"
            hidden = "return document.querySelector('#way [aria-label^=Redrive]').hidden"
            assert page.run(hidden)


def test_the_content_of_an_indication_is_shown_on_demand_where_it_is_kept(
    page: Browser, api: ScriptedApi
) -> None:
    api.show(told())
    kept = {"class": "CIM_AlertIndication", "properties": {"PerceivedSeverity": 5}}
    api.outcomes = [_outcome(1, identifier="a", indication=kept), _outcome(2, identifier="b")]
    _opened(page, api, "#/destination/siem")
    page.until("document.querySelectorAll('#discards tbody tr').length === 2")
    page.tab_to("[aria-label='Show a at siem']")
    page.press(Keys.ENTER)
    page.until("document.getElementById('body').open")
    assert json.loads(page.text("#body pre")) == kept
    page.press(Keys.ESCAPE)
    assert page.focused.get_attribute("aria-label") == "Show a at siem"
    page.run("document.querySelector(\"[aria-label='Show b at siem']\").click()")
    page.until("document.getElementById('of').textContent === 'b'")
    assert page.text("#body pre") == "The history does not keep its content."


def test_a_search_finds_what_became_of_an_indication_and_says_if_nothing_did(
    page: Browser, api: ScriptedApi
) -> None:
    api.outcomes = [
        _outcome(1, identifier="a/b", result="delivered", destination="archive", attempts=1),
        _outcome(2, identifier="a/b", reason="lifetime-expired", cause="status", detail="HTTP 503"),
    ]
    _opened(page, api)
    page.run("document.getElementById('identifier').focus()")
    page.press("a/b", Keys.ENTER)
    page.until("document.querySelectorAll('#way tbody tr').length === 2")
    assert page.texts("#way td:nth-child(3)") == [
        "delivered",
        "discarded: lifetime-expired: status: HTTP 503",
    ]
    assert page.text("#summary") == "2 outcomes: 1 delivered, 1 discarded."
    page.run("document.getElementById('identifier').focus()")
    page.press(Keys.CONTROL + "a", "nothing", Keys.ENTER)
    page.until("document.getElementById('summary').textContent.startsWith('No outcome has')")


def test_a_search_shows_where_an_indication_waits_and_its_place(
    page: Browser, api: ScriptedApi
) -> None:
    line = {
        "subscription": "s",
        "class": "CIM_AlertIndication",
        "source": HOSTILE,
        "identifier": "a",
        "acceptedTime": "2026-11-22T09:00:00Z",
    }
    api.pending = [
        {**line, "destination": "mail", "ahead": 1200, "attempts": 2},
        {**line, "destination": "siem", "inFlight": True, "group": "job-7"},
    ]
    api.unread = 3
    api.outcomes = [_outcome(1, identifier="a", result="delivered", destination="archive")]
    _opened(page, api, "#/search/a")
    page.until("document.querySelectorAll('#waits tbody tr').length === 2")
    assert page.texts("#waits td:nth-child(1)") == ["mail", "siem"]
    assert page.texts("#waits td:nth-child(2)") == ["1,200 before it", "under way; group job-7"]
    assert page.texts("#waits td:nth-child(3)") == [ESCAPED] * 2
    assert page.text("#summary") == (
        "Waits at 2 places. 3 of those that wait were not looked at. 1 outcome: 1 delivered."
    )
    api.pending, api.unread = [], 0
    api.outcomes.append(_outcome(2, identifier="a", result="delivered", destination="mail"))
    page.until("document.getElementById('waits').hidden")
    page.until("document.getElementById('summary').textContent === '2 outcomes: 2 delivered.'")


# ---------------------------------------------------------------------- wide and narrow


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("fragment", ["#/", "#/destination/siem", f"#/search/{LONG}"])
def test_it_fits_any_width_and_can_be_read_by_day_and_night(
    page: Browser, api: ScriptedApi, width: int, dark: bool, fragment: str
) -> None:
    page.resize(width, dark=dark)
    api.show(*STATES, failing("siem", detail=LONG, **waiting(20)), failing("x" * 253))
    api.outcomes = [_outcome(n, identifier=LONG, source=LONG, detail=LONG) for n in range(1, 4)]
    _opened(page, api, fragment)
    page.until("document.querySelectorAll('tbody tr').length >= 3")
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert page.run(CONTRAST) == []
