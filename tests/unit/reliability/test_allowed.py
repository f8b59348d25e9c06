"""Which callback URLs a service allows (S1.9)."""

import pytest

from pillion_sidecar.reliability.callbacks import BadCallback, check_callback


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("http://hooks.example", "http://hooks.example"),
        ("http://hooks.example", "http://hooks.example/any/thing?x=1"),
        ("http://hooks.example/", "http://hooks.example:80/any"),
        ("https://hooks.example:443", "https://hooks.example/a"),
        ("http://hooks.example:8080/pillion", "http://hooks.example:8080/pillion"),
        ("http://hooks.example:8080/pillion", "http://HOOKS.example:8080/pillion/"),
        ("http://hooks.example:8080/pillion/", "http://hooks.example:8080/pillion/job-7?k=/.."),
        ("http://[::1]:9/", "http://[::1]:9/a"),
    ],
)
def test_what_lies_below_a_prefix_is_allowed(prefix: str, url: str) -> None:
    check_callback(url, ("http://other.example", prefix))


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/pillion",
        "https://hooks.example:8080/pillion",
        "http://hooks.example:8081/pillion",
        "http://hooks.example:0/pillion",
        "http://hooks.example.evil:8080/pillion",
        "http://hooks.example:8080/pillionaire",
        "http://hooks.example:8080/Pillion",
        "http://hooks.example:8080/",
        "http://hooks.example:8080//pillion",
    ],
)
def test_what_lies_elsewhere_is_not(url: str) -> None:
    with pytest.raises(BadCallback, match="below none"):
        check_callback(url, ("http://hooks.example:8080/pillion",))


def test_below_a_prefix_that_is_none_lies_nothing_and_the_others_count() -> None:
    prefixes = ("http://[::::]/", "http://hooks.example/")
    check_callback("http://hooks.example/a", prefixes)
    with pytest.raises(BadCallback, match="below none"):
        check_callback("http://other.example/a", prefixes)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://hooks.example:8080@evil.example/pillion", "user information"),
        ("http://user:secret@hooks.example:8080/pillion", "user information"),
        ("http://hooks.example:8080/pillion/../admin", "dot segments"),
        ("http://hooks.example:8080/pillion/%2E%2e/admin", "encoded dots"),
        ("http://hooks.example:8080/pillion%2f..", "encoded dots"),
        ("http://hooks.example:8080/pillion\\..\\admin", "backslashes"),
        ("http://hooks.example:8080/pillion#x", "fragment"),
        ("ftp://hooks.example:8080/pillion", "https://HOST"),
        ("/pillion", "https://HOST"),
        ("http:///pillion", "https://HOST"),
        ("http://hooks.example:99999/pillion", "ort"),
        ("http://hooks.example:8080/pillion\r\nX: y", "control"),
        ("http://hööks.example:8080/pillion", "non-ASCII"),
        ("http://hooks.example:8080/pillion/" + "x" * 2048, "2048"),
    ],
)
def test_what_could_be_read_in_two_ways_is_not_allowed_anywhere(url: str, says: str) -> None:
    with pytest.raises(BadCallback, match=says):
        check_callback(url, ("http://hooks.example:8080/pillion", "http://evil.example"))


def test_without_a_list_nothing_is_allowed() -> None:
    with pytest.raises(BadCallback, match=r"allows no callbacks: .*IndicationService\.callbacks"):
        check_callback("http://hooks.example", ())
