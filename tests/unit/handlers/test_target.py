"""Destination URLs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.transport.target import HTTPTarget, parse_target


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a.example", HTTPTarget("a.example", 80, False, "a.example", "/")),
        ("https://a.example/", HTTPTarget("a.example", 443, True, "a.example", "/")),
        ("http://a.example:80/", HTTPTarget("a.example", 80, False, "a.example", "/")),
        ("http://A.Example:81/x", HTTPTarget("a.example", 81, False, "a.example:81", "/x")),
        ("https://a/x/y?z=1#f", HTTPTarget("a", 443, True, "a", "/x/y?z=1")),
        ("http://[::1]:8080/x", HTTPTarget("::1", 8080, False, "[::1]:8080", "/x")),
        ("a.example:81/x", HTTPTarget("a.example", 81, False, "a.example:81", "/x")),
        ("HTTP://a.example?q", HTTPTarget("a.example", 80, False, "a.example", "/?q")),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: HTTPTarget) -> None:
    assert parse_target(url) == expected


def test_a_protocol_has_its_own_default_ports() -> None:
    assert parse_target("http://a", port=5988, tls_port=5989).authority == "a:5988"
    assert parse_target("https://a", port=5988, tls_port=5989).authority == "a:5989"
    assert parse_target("https://a:443", port=5988, tls_port=5989).authority == "a"


@pytest.mark.parametrize(
    "url",
    [
        None, 5, "", "ftp://a.example", "mailto:a@b", "http://", "http:///x", "http://a:0x50/",
        "http://a:99999/", "http://u:p@a/", "http://a b/", "http://a/\r\nX: y", "http://ä/",
        "http://[::1/", "http://.a/", "http://a..b/", "http://a\x00/",
    ],
)  # fmt: skip
def test_what_cannot_be_sent_to_is_refused(url: object) -> None:
    with pytest.raises(InvalidDestinationError):
        parse_target(url)


@given(st.text(max_size=60) | st.from_regex(r"https?://[!-~]{0,30}"))
def test_no_text_does_worse_than_being_refused(url: str) -> None:
    try:
        target = parse_target(url)
    except InvalidDestinationError:
        return
    head = f"POST {target.request_uri} HTTP/1.1\r\nHost: {target.authority}\r\n"
    assert head.isascii()
    assert head.count("\r\n") == 2
    assert len(head.split("\r\n")[0].split(" ")) == 3
