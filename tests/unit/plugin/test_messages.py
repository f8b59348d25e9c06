"""Lines of JSON-RPC, and the parameters in them: any line is parsed or refused, never more."""

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_plugin import Retry, messages
from pillion_plugin.delivery import ParameterError, Peer, delivery_from
from pillion_plugin.link import Plugin
from pillion_plugin.messages import MESSAGE_LIMIT, MessageError, Request
from pillion_plugin.serving import read_lines
from support.plugin_link import deliver_params

PEER = Peer(destination="d", url="plugin://d", service="s")


def test_a_request_and_a_notification() -> None:
    line = '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"ü"}}'.encode()
    assert messages.parse(line) == Request("m", 1, {"a": "ü"})
    assert messages.parse(b'{"jsonrpc":"2.0","method":"m"}') == Request("m", None, {})


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (b"{", -32700, "not JSON in UTF-8"),
        (b'"\xff"', -32700, "not JSON in UTF-8"),
        (b"NaN", -32700, "not JSON in UTF-8"),
        (b"[" * 100_000, -32700, "not JSON in UTF-8"),
        (b"1" * 5000, -32700, "not JSON in UTF-8"),
        (b"[]", -32600, "batches are not supported"),
        (b'{"id":1,"method":"m"}', -32600, 'jsonrpc: not "2.0"'),
        (b'{"jsonrpc":"2.0","id":1}', -32600, "method: not a string"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', -32600, "id: not a whole number"),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, "id: not a whole number"),
        (b'{"jsonrpc":"2.0","id":"%s","method":"m"}' % (b"x" * 300), -32600, "id: not a"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[]}', -32602, "params: not an object"),
    ],
)
def test_a_wrong_line_is_refused_with_what_is_wrong(line: bytes, code: int, said: str) -> None:
    with pytest.raises(MessageError, match=said) as caught:
        messages.parse(line)
    assert caught.value.code == code


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
MEMBERS = st.fixed_dictionaries(
    {}, optional={name: JSON for name in ("jsonrpc", "id", "method", "params", "result")}
)


@given(st.binary() | MEMBERS.map(lambda value: json.dumps(value).encode()))
def test_any_line_is_parsed_or_refused(line: bytes) -> None:
    with suppress(MessageError):
        messages.parse(line)


@given(st.dictionaries(st.sampled_from(sorted(deliver_params(sequenceNumber=1))), JSON))
def test_any_parameters_are_taken_or_refused(changed: dict[str, Any]) -> None:
    try:
        delivery = delivery_from(deliver_params() | changed, PEER)
    except ParameterError:
        return
    assert 0 < delivery.timeout <= 86_400
    assert delivery.class_name


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"indication": None}, "indication: an object with class and properties is missing"),
        ({"indication": {"properties": {}}}, "indication.class: the name of a class is missing"),
        ({"indication": {"class": "X"}}, "indication.properties: an object is missing"),
        ({"timeout": True}, "timeout: not a number of seconds"),
        ({"timeout": float("inf")}, "timeout: not a number of seconds"),
        ({"attempt": "1"}, "attempt: not a whole number"),
        ({"filterName": 1}, "filterName: not a string"),
    ],
)
def test_a_wrong_parameter_is_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        delivery_from(deliver_params() | changed, PEER)


@given(st.text(), st.text(max_size=256))
def test_an_answer_is_one_bounded_line(text: str, id: str) -> None:
    value = {"outcome": "error", "detail": messages.one_line(text)}
    for line in (messages.result(id, value), messages.error(id, -32600, text)):
        assert line.count(b"\n") == 1
        assert len(line) <= 64 * 1024
        assert json.loads(line)["id"] == id


def test_lines_end_at_the_end_of_input_at_half_a_line_and_at_one_that_is_too_long() -> None:
    assert list(read_lines(io.BytesIO(b"a\n\n \nb\nhalf"))) == [b"a\n", b"b\n"]
    longest = b"x" * MESSAGE_LIMIT + b"\n"
    assert list(read_lines(io.BytesIO(longest))) == [longest]
    assert list(read_lines(io.BytesIO(b"x" + longest + b"b\n"))) == []


@pytest.mark.parametrize(
    ("name", "in_flight", "said"),
    [
        ("", 1, "name: it is empty"),
        ("x", 0, "in_flight: 0 is not"),
        ("x", 6, "in_flight: 6 is not"),
    ],
)
def test_a_plug_in_with_a_wrong_argument_is_refused(name: str, in_flight: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Plugin(deliver=print, name=name, in_flight=in_flight)


@pytest.mark.parametrize("after", [-1.0, float("nan"), float("inf")])
def test_a_retry_is_after_a_number_of_seconds(after: float) -> None:
    with pytest.raises(ValueError, match="after: "):
        Retry("busy", after=after)
