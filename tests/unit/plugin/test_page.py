"""``docs/plugins.md`` says what the helper, the check and the scripts do."""

import json
import re
from typing import Any

import pytest

from pillion_cli.plugin import checks, scripts
from pillion_plugin import messages
from pillion_plugin.delivery import Peer, delivery_from, peer_from
from pillion_plugin.link import MOST_IN_FLIGHT
from pillion_plugin.log import LINE_LIMIT
from pillion_plugin.messages import MESSAGE_LIMIT, Request
from pillion_plugin.serving import MOST_LINKS
from pillion_sidecar.handlers import plugin_slots
from pillion_sidecar.handlers.plugin import link
from pillion_sidecar.handlers.plugin import messages as deliverer
from pillion_sidecar.handlers.plugin.process import KEPT_PREFIX, KEPT_VARIABLES
from support.manual import DOCS, blocks, codes, numbers, table, text_of

PAGE = "plugins.md"
MESSAGES: list[dict[str, Any]] = [json.loads(block) for block in blocks(DOCS / PAGE, "json")]


def of_method(method: str) -> dict[str, Any]:
    (found,) = [one for one in MESSAGES if one.get("method") == method]
    return found


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in MESSAGES if one.get("id") == request["id"] and "result" in one]
    return found


@pytest.mark.parametrize("method", ["initialize", "deliver"])
def test_a_request_on_the_page_is_taken(method: str) -> None:
    request = messages.parse(json.dumps(of_method(method)).encode())
    assert isinstance(request, Request)
    if method == "initialize":
        assert peer_from(request.params).url == "plugin://notes/team-a?level=2"
        assert request.params["protocolVersions"] == [messages.PROTOCOL_VERSION]
    else:
        peer = Peer(destination="", url="", service="")
        assert delivery_from(request.params, peer).identifier == "fan-3-4711"
        told = {name for row in table(PAGE, "parameter") for name in codes(row[0])}
        assert told == set(request.params)


def test_the_answers_on_the_page_pass_the_check() -> None:
    answer = answer_to(of_method("deliver"))
    assert checks._outcome(answer) == "error (the service is busy)"
    result = answer_to(of_method("initialize"))["result"]
    assert result["protocolVersion"] == deliverer.VERSION
    told = {name for row in table(PAGE, "result") for name in codes(row[0])}
    assert told == {"outcome", "detail", "retryAfter", "refusesIndication"}


def test_the_limits_on_the_page_are_the_constants() -> None:
    rows = table(PAGE, "limit")
    limits = dict(rows)
    assert numbers(limits["a line to the plug-in"])[0] == MESSAGE_LIMIT
    assert numbers(limits["a line to the deliverer"])[0] == deliverer.ANSWER_LIMIT
    assert numbers(limits["commands under way on a link"])[-1] == MOST_IN_FLIGHT
    assert deliverer.MOST_IN_FLIGHT == MOST_IN_FLIGHT
    (silence,) = [value for name, value in rows if name.startswith("the time-out of the link")]
    assert f"plus {link.MARGIN_SECONDS:g} seconds" in silence
    assert limits["a link without a delivery, until the deliverer ends it"] == (
        f"{link.IDLE_SECONDS:g} seconds"
    )
    assert numbers(limits["links of a deliverer"])[0] == plugin_slots.MOST_LINKS
    text = text_of(PAGE)
    assert f"up to {MOST_LINKS} links at once" in text
    assert f"A value has at most {scripts.VALUE_LIMIT:,} characters" in text
    assert f"SIGKILL at {scripts.KILL_SHARE:.0%}".replace("%", " %") in text


def test_the_exit_codes_on_the_page_are_those_of_scripts() -> None:
    rows = dict(table(PAGE, "exit code"))
    assert rows == {
        "0": "success",
        str(scripts.FATAL): "fatal",
        "75 (by convention), any other, or ended by a signal": "error",
    }


def test_the_variables_on_the_page_are_those_of_scripts_and_plug_ins() -> None:
    given = {name for row in table(PAGE, "the script gets") for name in codes(row[0])}
    delivery = delivery_from(
        of_method("deliver")["params"], Peer(destination="d", url="u", service="s")
    )
    assert given - {"standard input"} == set(scripts.environment(delivery))
    (sentence,) = re.findall(r"A plug-in gets (.*?) of the deliverer's", text_of(PAGE), re.DOTALL)
    assert set(codes(sentence)) == {*KEPT_VARIABLES, f"{KEPT_PREFIX}…"}


def test_the_checks_on_the_page_are_all() -> None:
    (output,) = [one for one in blocks(DOCS / PAGE, "text") if one.startswith("pass")]
    assert re.findall(r"^pass  (.+?):", output, re.MULTILINE) == list(checks.CHECKS)


def test_the_limit_of_lines_for_the_log_on_the_page_is_the_constant() -> None:
    assert text_of(PAGE).count(f"at {LINE_LIMIT:,} bytes") == 1
    assert text_of(PAGE).count(f"at most {LINE_LIMIT:,} bytes") == 1
