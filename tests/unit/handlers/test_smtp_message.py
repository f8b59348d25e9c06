"""What a message of indications holds, and that no value gets out of its place."""

import json
from dataclasses import replace
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.smtp.message import SUBJECT_LIMIT, TEXT_LIMIT, MessageFormat
from pillion_sidecar.protocols.smtp import MOST_RECIPIENTS, SMTPOptions
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication

OPTIONS = SMTPOptions(sender="pillion@station.example", recipients=("on-call@ops.example",))
HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
MIME = {"MIME-Version", "Content-Type", "Content-Transfer-Encoding"}
ATTACKS = (
    "a\r\nBcc: thief@evil.example\r\n\r\nbody",
    "=?utf-8?q?a=0D=0ABcc:_thief=40evil.example?=",
    "\r\n.\r\nMAIL FROM:<thief@evil.example>\r\n",
    "\n.\n",
    "a\0b\x1b[2J\x85\u2028\u202eb",
    "\N{SNOWMAN}" * 300,
    "x" * 3000,
    " ",
    "",
    "--===============",
)


def format_of(options: SMTPOptions = OPTIONS, *, uid: str = "u") -> MessageFormat:
    return MessageFormat(options, uid=uid, clock=FakeTime(), service_name="default")


def body_of(properties: dict[str, Any]) -> bytes:
    return json.dumps({"class": "CIM_AlertIndication", "properties": properties}).encode()


def raw_of(made: MessageFormat, *properties: dict[str, Any], **given: Any) -> bytes:
    items = [made.item(delivery(indication(body_of(one), **given))) for one in properties]
    return made.message(items)


def parsed(raw: bytes) -> EmailMessage:
    return message_from_bytes(raw, policy=policy.SMTP)


def parts_of(raw: bytes) -> tuple[str, list[Any]]:
    text, attached = parsed(raw).iter_parts()
    assert isinstance(text, EmailMessage)
    assert isinstance(attached, EmailMessage)
    assert attached.get_content_type() == "application/json"
    assert attached.get_filename() == "indications.json"
    return text.get_content(), json.loads(attached.get_content())


def check_form(raw: bytes) -> EmailMessage:
    """RFC 5321 4.5.3.1.6, RFC 5322 2.3: short 7-bit lines that end in CRLF, and the headers."""
    assert raw.isascii()
    assert b"\0" not in raw
    lines = raw.split(b"\r\n")
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert max(map(len, lines)) <= 998
    message = parsed(raw)
    assert [name for name in message if name not in MIME] == HEADERS
    assert message["To"] == "on-call@ops.example"
    return message


def test_a_message_is_text_and_json() -> None:
    raw = raw_of(
        format_of(),
        {
            "PerceivedSeverity": 6,
            "Message": "Fan 3 failed",
            "MessageArguments": ["3", None],
            "EventID": {"type": "string", "value": "e"},
            "Empty": None,
        },
        identifier="a-1",
        source="station-7",
    )
    assert check_form(raw)["Subject"] == "critical: Fan 3 failed"
    text, (instance,) = parts_of(raw)
    assert text.replace("\r\n", "\n") == (
        "class: CIM_AlertIndication\n"
        "severity: critical\n"
        "time: 2023-11-14T21:56:40Z\n"
        "source: station-7\n"
        "filterName: severe\n"
        "identifier: a-1\n"
        "\n"
        "PerceivedSeverity: 6\n"
        "Message: Fan 3 failed\n"
        'MessageArguments: ["3", null]\n'
        "EventID: e\n"
    )
    assert instance["source"] == "station-7"
    assert instance["properties"]["IndicationFilterName"] == "severe"


@pytest.mark.parametrize("value", ATTACKS)
def test_no_value_gets_out_of_its_place(value: str) -> None:
    made = format_of(replace(OPTIONS, subject="${Message} ${source}"))
    raw = raw_of(made, {"Message": value, value or "a": value}, identifier=value, source=value)
    message = check_form(raw)
    assert len(str(message["Subject"])) <= SUBJECT_LIMIT
    _, (instance,) = parts_of(raw)
    assert instance["properties"]["Message"] == value


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_whatever_a_value_is_the_message_keeps_its_form(value: str) -> None:
    raw = None
    try:
        raw = raw_of(format_of(), {"Message": value, "Other": [value]}, source=value)
    except UNSAYABLE:
        # Half of a surrogate pair: UTF-8 has none.
        assert any("\ud800" <= letter <= "\udfff" for letter in value)
    if raw is not None:
        check_form(raw)


def test_many_recipients_and_a_long_text_stay_within_the_limit() -> None:
    recipients = tuple(
        f"{'a' * 60}{number}@{'b' * 63}.{'c' * 63}.{'d' * 50}" for number in range(MOST_RECIPIENTS)
    )
    options = replace(OPTIONS, recipients=recipients, max_bytes=65_536)
    made = format_of(options)
    long = {f"P{number}": "\N{SNOWMAN}" * 500 for number in range(20)}
    for properties in (long, {"Message": "x" * 10_000}, {"Message": "=" * 10_000}):
        raw = raw_of(made, properties)
        assert len(raw) <= 65_536
        assert [str(one) for one in parsed(raw)["To"].addresses] == list(recipients)
    # As many as a batch may have.
    item = made.item(delivery(indication(body_of({"Message": "\N{SNOWMAN}" * 700}))))
    assert len(made.message([item] * (made.most_bytes // len(item)))) <= 65_536


def test_a_text_is_cut_at_a_line() -> None:
    raw = raw_of(format_of(), {f"P{number}": "x" * 700 for number in range(20)})
    text, _ = parts_of(raw)
    assert len(text) < TEXT_LIMIT + 100
    assert text.splitlines()[-1] == "..."


def test_the_json_is_left_out_where_it_does_not_fit() -> None:
    made = format_of(replace(OPTIONS, max_bytes=65_536))
    raw = raw_of(made, {"Message": "x" * 40_000})
    (text,) = check_form(raw).iter_parts()
    assert isinstance(text, EmailMessage)
    assert "bytes, is left out." in text.get_content()


def test_a_retry_has_the_same_id_and_any_other_message_another_one() -> None:
    first, second = indication(identifier="a"), indication(identifier=None)
    both = [delivery(first), delivery(second)]
    again = [delivery(one.indication, attempt=2, correlated=True) for one in both]

    def id_of(deliveries: list[Any], **given: Any) -> str:
        made = format_of(**given)
        return str(parsed(made.message([made.item(one) for one in deliveries]))["Message-ID"])

    known = id_of(both)
    assert id_of(again) == known
    others = [
        id_of(both[:1]),
        id_of(both[::-1]),
        id_of(both, uid="v"),
        id_of([delivery(first, filter_name="b"), both[1]]),
        id_of([delivery(indication(identifier="c")), both[1]]),
    ]
    assert len({known, *others}) == 6


@pytest.mark.parametrize(
    ("template", "subject"),
    [
        ("${class}", "CIM_AlertIndication"),
        ("${Missing}", "Indication"),
        ("Costs ${$}5: ${Message:5}", "Costs $5: Fan …"),
        ('"quoted" \\ ünïcode', '"quoted" \\ ünïcode'),
    ],
)
def test_a_subject_is_a_text_with_placeholders(template: str, subject: str) -> None:
    raw = raw_of(format_of(replace(OPTIONS, subject=template)), {"Message": "Fan 3 failed"})
    assert check_form(raw)["Subject"] == subject


def test_what_is_no_instance_cannot_be_said() -> None:
    with pytest.raises(UNSAYABLE):
        format_of().item(delivery(indication(b"[]")))
