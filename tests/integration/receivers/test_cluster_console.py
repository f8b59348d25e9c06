"""The console of a cluster in a real Chromium: the token, the rows, and one deliverer through the
operator."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from pillion_operator.console import access
from pillion_operator.polling.reports import Unreachable, report_of
from pillion_sidecar.settings import OPERATOR_CONSOLE
from pillion_sidecar.wire.queues import Moment, QueuePage, QueueStatus, RateLimitStatus
from support.browser import CONTRAST, Browser, browser
from support.cluster_console import ClusterConsole, cluster_console, rights
from support.processes import listener_process, sidecar_process
from support.queue_answers import failing, told
from support.running import alert, listener, resources

pytestmark = pytest.mark.timeout(180)

ROWS = "#queues tbody tr"
TOKEN = "operator-secret"


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def page(started: Browser) -> Iterator[Browser]:
    started.resize(1280)
    yield started
    started.driver.get("about:blank")
    assert [one for one in started.complaints() if " 401 " not in one and " 403 " not in one] == []


@pytest.fixture
def cluster() -> Iterator[ClusterConsole]:
    with cluster_console(ClusterConsole()) as cluster:
        show = cluster.deliverers.show
        show("shop", "web-0", told("siem"), failing("mail", depth=3, cause="refused"))
        show("bank", "pay-0", told("siem", depth=9))
        yield cluster


def _sign_in(page: Browser, token: str = "admin") -> None:
    page.until("!document.getElementById('signin').hidden")
    assert page.focused.get_attribute("id") == "token"
    page.press(token, Keys.ENTER)


def _opened(page: Browser, cluster: ClusterConsole, fragment: str = "#/") -> None:
    page.open(f"{cluster.url}/console{fragment}")
    _sign_in(page)
    page.until("document.getElementById('link').textContent === 'Live'")


def test_a_token_shows_the_worst_destination_of_the_cluster(
    page: Browser, cluster: ClusterConsole
) -> None:
    page.open(f"{cluster.url}/console")
    page.until("!document.getElementById('signin').hidden")
    assert page.run("return document.getElementById('overview').hidden")
    _sign_in(page, "guessed")
    page.until("document.getElementById('refusal').textContent.includes('does not accept')")
    _sign_in(page)
    page.until(f"document.querySelectorAll('{ROWS}').length === 3")
    assert page.text("#banner") == (
        "mail at shop/web-0 fails: refused: HTTP 503."
        " It is the only one of 3 destinations in trouble."
    )
    assert page.texts(f"{ROWS} th") == [
        "mailshop / web-0",
        "siembank / pay-0",
        "siemshop / web-0",
    ]
    assert page.texts(f"{ROWS} .state") == ["failing", "ok", "ok"]


def test_the_token_is_in_memory_alone(page: Browser, cluster: ClusterConsole) -> None:
    _opened(page, cluster)
    kept = "[document.cookie, localStorage.length, sessionStorage.length, location.href]"
    assert page.run(f"return {kept}") == ["", 0, 0, f"{cluster.url}/console#/"]
    assert page.run("return document.documentElement.outerHTML.includes('admin')") is False
    page.tab_to("#forget")
    page.press(Keys.ENTER)
    page.until("!document.getElementById('signin').hidden")
    assert page.texts(ROWS) == []
    _sign_in(page)
    page.until(f"document.querySelectorAll('{ROWS}').length === 3")
    page.driver.refresh()
    page.until("!document.getElementById('signin').hidden")


def test_rows_are_filtered_by_namespace_and_text(page: Browser, cluster: ClusterConsole) -> None:
    _opened(page, cluster)
    page.until(f"document.querySelectorAll('{ROWS}').length === 3")
    page.tab_to("#namespace")
    page.press("shop")
    page.until(f"document.querySelectorAll('{ROWS}').length === 2")
    page.tab_to("#filter")
    page.press("siem web")
    assert page.texts(f"{ROWS} th") == ["siemshop / web-0"]
    assert page.text("#count") == "1 of 3"


def test_a_person_sees_what_the_person_may_read(page: Browser, cluster: ClusterConsole) -> None:
    cluster.reviewer.people |= {"banker": rights("bank", "states"), "nobody": frozenset()}
    page.open(f"{cluster.url}/console")
    _sign_in(page, "banker")
    page.until(f"document.querySelectorAll('{ROWS}').length === 1")
    assert "shop" not in page.text("body")
    page.tab_to(f"{ROWS} a")
    page.press(Keys.ENTER)
    page.until("document.getElementById('state').textContent.startsWith('banker may not get')")
    page.run("document.getElementById('forget').click()")
    page.run("location.hash = '#/'")
    _sign_in(page, "nobody")
    page.until("document.getElementById('banner').textContent.startsWith('nobody may not get')")


def test_a_deliverer_that_does_not_answer_is_named(page: Browser, cluster: ClusterConsole) -> None:
    since = datetime.now(UTC).timestamp() - 300
    cluster.deliverers.answers.clear()
    cluster.deliverers.add("shop", Unreachable(pod="web-7", reason="timed out", since=since))
    _opened(page, cluster)
    page.until(f"document.querySelectorAll('{ROWS}').length === 1")
    assert page.text("#banner") == (
        "shop/web-7 is unknown: its deliverer does not answer: timed out."
    )
    assert page.text(f"{ROWS} td:nth-child(4)") == "5 min"


def test_a_queue_is_judged_at_the_time_of_its_report(
    page: Browser, cluster: ClusterConsole
) -> None:
    at = datetime.now(UTC).timestamp() - 30

    def busy(name: str, *, since: float) -> QueueStatus:
        times = {
            "last_attempt_time": Moment(at - since),
            "oldest_indication_time": Moment(at - since),
        }
        return told(name, depth=5, in_flight=1, **times)

    queues = [busy("busy", since=1), busy("hung", since=8)]
    report = report_of("mill-0", [QueuePage(revision="r1", queues=queues)], at=at)
    cluster.deliverers.add("mill", report)
    _opened(page, cluster)
    page.run("document.getElementById('filter').focus()")
    page.press("mill")
    page.until(f"document.querySelectorAll('{ROWS}').length === 2")
    assert page.texts(f"{ROWS} .state") == ["unanswered", "ok"]


def test_a_limited_destination_is_no_trouble(page: Browser, cluster: ClusterConsole) -> None:
    limit = RateLimitStatus(per_second=5, burst=5, limiting=True)
    cluster.deliverers.show("mill", "mill-0", told("slow-api", depth=40, rate_limit=limit))
    _opened(page, cluster)
    page.until(f"document.querySelectorAll('{ROWS}').length === 4")
    assert "limited" in page.texts(f"{ROWS} .state")


def test_a_right_that_is_withdrawn_takes_what_was_read_from_the_page(
    page: Browser, cluster: ClusterConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "REVIEW_SECONDS", 0.0)
    _opened(page, cluster)
    page.until(f"document.querySelectorAll('{ROWS}').length === 3")
    cluster.reviewer.people["admin"] = frozenset()
    told_of = "document.getElementById('banner').textContent.includes('may not get')"
    page.until(told_of)
    assert page.texts(f"{ROWS} th") == []
    # The page paints itself once a second: the refusal stays.
    page.run("paint()")
    assert page.run(f"return {told_of}")


def test_what_strangers_write_is_text(page: Browser, cluster: ClusterConsole) -> None:
    hostile = "<img src=x onerror=\"document.title='taken'\">\u202e"
    cluster.deliverers.show("shop", hostile, failing(detail=hostile, depth=50))
    _opened(page, cluster)
    page.until(f"document.querySelectorAll('{ROWS}').length === 4")
    assert "\\u202e" in page.text("#banner")
    assert page.run("return document.querySelectorAll('img, [onerror]').length") == 0
    assert "taken" not in page.driver.title


def test_one_deliverer_is_shown_and_its_buttons_work_through_the_operator(
    page: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPERATOR_CONSOLE, "true")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    options = ("--journal", str(tmp_path / "journal"), "--operator-token-file", str(token))
    with listener_process(tmp_path) as receiver:
        receiver.behave(status=503)
        documents = resources(listener("siem", receiver.url))
        with sidecar_process(tmp_path, *documents, options=options) as sidecar:
            sidecar.publish(*(alert(f"a-{number}") for number in range(3)))
            made = ClusterConsole(port=urlsplit(sidecar.telemetry).port or 0)
            made.deliverers.token = TOKEN
            made.deliverers.show("shop", "web-0", failing("siem", depth=3))
            with cluster_console(made) as cluster:
                _opened(page, cluster)
                page.until(f"document.querySelectorAll('{ROWS}').length === 1")
                page.tab_to(f"{ROWS} a")
                page.press(Keys.ENTER)
                page.until("document.querySelector('#attempts tbody tr')")
                assert page.run("return location.hash") == "#/at/shop/web-0/destination/siem"
                _confirm(page, "retry", "siem: the next attempt is made now.")
                _confirm(page, "skip", "siem: discarded a-0.")
                page.until("document.querySelectorAll('#discards tbody tr').length === 1")
                page.run("document.querySelector(\"[aria-label='Show a-0 at siem']\").click()")
                page.until("document.getElementById('body').open")
                assert "CIM_AlertIndication" in page.text("#body pre")
                page.press(Keys.ESCAPE)
                receiver.behave()
                _confirm(page, "redrive", "siem: 1 redriven.")
                _confirm(page, "retry", "siem: the next attempt is made now.")
                page.until("document.querySelectorAll('#outcomes tbody tr').length === 5")
                page.tab_to("#discards a")
                page.press(Keys.ENTER)
                page.until("document.querySelectorAll('#way tbody tr').length === 3")
                assert page.run("return location.hash") == "#/at/shop/web-0/search/a-0"
                page.tab_to("#found .whole")
                page.press(Keys.ENTER)
                page.until(f"document.querySelector('{ROWS} .state')?.textContent === 'ok'")
                page.tab_to("#back a")
                page.press(Keys.ENTER)
                page.until(f"document.querySelector('{ROWS} .state')?.textContent === 'failing'")


def _confirm(page: Browser, action: str, said: str) -> None:
    page.tab_to(f"[data-action={action}]")
    page.press(Keys.ENTER)
    page.until("document.getElementById('ask').open")
    page.tab_to("#yes")
    page.press(Keys.ENTER)
    page.until(f"document.getElementById('done').textContent === {json.dumps(said)}")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1600])
def test_it_fits_any_width_and_can_be_read_by_day_and_night(
    page: Browser, cluster: ClusterConsole, width: int, dark: bool
) -> None:
    page.resize(width, dark=dark)
    due = Moment(datetime.now(UTC).timestamp() + 7_260)
    cluster.deliverers.show("n" * 63, "p" * 63, failing("x" * 253, first_loss_due_time=due))
    page.open(f"{cluster.url}/console")
    page.until("!document.getElementById('signin').hidden")
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert page.run(CONTRAST) == []
    _sign_in(page)
    page.until(f"document.querySelectorAll('{ROWS}').length === 4")
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert page.run(CONTRAST) == []
