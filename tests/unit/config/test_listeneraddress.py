"""Two spellings of one listener are one address (D.2)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.addresses import (
    listener_address,
    same_port_and_path,
)
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.schema.destination import ListenerDestination, SequenceIdentifiers
from pillion_sidecar.protocols import PROTOCOLS

HOSTS = ("one.example.org", "ONE.example.org.", "192.0.2.7", "[2001:db8::1]", "localhost")
PATHS = ("", "/", "/a%2Db", "/A/b%2fc", "/x?y=%7e")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h.example", "http://h.example/"),
        ("http://h.example", "http://h.example:5988"),
        ("https://h.example/x", "https://h.example:5989/x"),
        ("HTTP://h.example/", "http://h.example/"),
        ("http://H.Example/", "http://h.example/"),
        ("http://h.example./", "http://h.example/"),
        ("http://h.example:/", "http://h.example/"),
        ("http://[2001:DB8:0::1]/", "http://[2001:db8::1]/"),
        ("http://[::ffff:192.0.2.7]/", "http://192.0.2.7/"),
        ("http://h.example/%7Eops", "http://h.example/~ops"),
        ("http://h.example/a%2fb", "http://h.example/a%2Fb"),
        ("http://localhost:1/", "http://127.0.0.1:1/"),
        ("http://LOCALHOST:1/", "http://[::1]:1"),
    ],
)
def test_spellings_of_one_listener_are_one_address(one: str, other: str) -> None:
    assert listener_address(one) == listener_address(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h.example/", "https://h.example:5988/"),
        ("http://h.example:80/", "http://h.example/"),
        ("http://h.example/a", "http://h.example/A"),
        ("http://h.example/a%2Fb", "http://h.example/a/b"),
        ("http://h.example/a", "http://h.example/a/"),
        ("http://h.example/?a", "http://h.example/?b"),
        ("http://one.example/", "http://two.example/"),
    ],
)
def test_other_listeners_have_other_addresses(one: str, other: str) -> None:
    assert listener_address(one) != listener_address(other)


def test_the_default_port_is_the_protocols() -> None:
    events = listener_address("http://h.example/", "CloudEvents")
    assert events == listener_address("http://h.example:80", "CloudEvents")
    assert events != listener_address("http://h.example/", "CIM-XML")


@given(
    st.one_of(
        st.text(),
        st.builds(
            lambda *parts: "".join(parts),
            st.sampled_from(("http://", "HTTPS://", "ftp://")),
            st.sampled_from(HOSTS),
            st.sampled_from(("", ":", ":80", ":5988", ":99999", ":x")),
            st.sampled_from(PATHS),
        ),
    ),
    st.sampled_from(list(PROTOCOLS)),
)
def test_an_address_is_its_own_address_whatever_the_text(url: str, protocol: str) -> None:
    address = listener_address(url, protocol)
    assert listener_address(address, protocol) == address


def _destinations(*urls: str, **more: object) -> list[ListenerDestination]:
    return [
        ListenerDestination(
            name=f"d{number}",
            uid=f"u{number}",
            destination=url,
            protocol="CIM-XML",
            **more,  # type: ignore[arg-type]
        )
        for number, url in enumerate(urls)
    ]


def test_two_names_with_one_port_and_path_are_warned_of() -> None:
    warning = same_port_and_path(_destinations("http://a.example:9/x", "http://192.0.2.7:9/x"))
    assert warning is not None
    assert "d0 (http://a.example:9/x) and d1 (http://192.0.2.7:9/x)" in warning
    assert "sequenceIdentifiers to Omit" in warning


def test_the_warning_names_few_of_many() -> None:
    urls = [f"http://h{number}.example/" for number in range(10_000)]
    warning = same_port_and_path(_destinations(*urls))
    assert warning is not None
    assert "and 9996 more pairs" in warning
    assert len(warning) < 1000


@pytest.mark.parametrize(
    "urls",
    [
        ("http://a.example:9/x", "http://b.example:8/x"),
        ("http://a.example:9/x", "http://b.example:9/y"),
        ("http://a.example:9/x", "http://A.example:9/x"),
        ("http://192.0.2.7:9/x", "http://192.0.2.8:9/x"),
    ],
)
def test_what_differs_or_is_one_address_is_not_warned_of(urls: tuple[str, str]) -> None:
    assert same_port_and_path(_destinations(*urls)) is None


def test_listeners_that_get_no_identifiers_are_not_warned_of() -> None:
    omitting = _destinations(
        "http://a.example:9/x",
        "http://b.example:9/x",
        sequence_identifiers=SequenceIdentifiers.OMIT,
    )
    assert same_port_and_path(omitting) is None


@pytest.mark.parametrize("other", [{"url_is_secret": True}, {}], ids=["secret", "written"])
def test_a_url_in_a_secret_is_compared_with_no_other(other: dict[str, bool]) -> None:
    secret = _destinations("http://a.example:9/x", url_is_secret=True)
    guess = _destinations("http://b.example:9/x", **other)
    assert same_port_and_path([*secret, *guess]) is None


def test_the_warning_is_part_of_a_loaded_configuration(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(
        "\n---\n".join(
            "apiVersion: pillion.dev/v1alpha1\nkind: ListenerDestination\n"
            f"metadata: {{name: {name}}}\n"
            f"spec: {{destination: 'https://{host}:5989/x', protocol: CIM-XML}}"
            for name, host in (("one", "one.example"), ("two", "two.example"))
        )
    )
    (warning,) = load_folder(tmp_path).warnings
    assert warning.startswith("destinations have one port and path under different host names")
