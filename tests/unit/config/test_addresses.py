"""Where a destination may lead to: literal forms, embedded addresses, and the policy."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.addresses import (
    AddressKind,
    AddressPolicy,
    classify,
    host_of,
    is_local_name,
    parse_host,
)
from pillion_sidecar.config.schema.urls import URL
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.transport.target import parse_target
from support.resource_values import URL_PIECES

STANDALONE = AddressPolicy(allow_loopback=True)
EVERYTHING = AddressPolicy(allow_loopback=True, allow_link_local=True, allow_metadata=True)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("8.8.8.8", AddressKind.PUBLIC),
        ("2600::1", AddressKind.PUBLIC),
        ("10.1.2.3", AddressKind.PRIVATE),
        ("192.168.0.1", AddressKind.PRIVATE),
        ("100.64.0.1", AddressKind.PRIVATE),
        ("fd12::1", AddressKind.PRIVATE),
        ("127.0.0.1", AddressKind.LOOPBACK),
        ("127.255.255.254", AddressKind.LOOPBACK),
        ("::1", AddressKind.LOOPBACK),
        ("169.254.7.7", AddressKind.LINK_LOCAL),
        ("fe80::1", AddressKind.LINK_LOCAL),
        ("fe80::1%eth0", AddressKind.LINK_LOCAL),
        ("169.254.169.254", AddressKind.METADATA),
        ("169.254.170.2", AddressKind.METADATA),
        ("100.100.100.200", AddressKind.METADATA),
        ("fd00:ec2::254", AddressKind.METADATA),
        ("fd00:ec2::254%eth0", AddressKind.METADATA),
        ("fe80::a9fe:a9fe%eth0", AddressKind.METADATA),
        ("fd00:c1::a9fe:a9fe", AddressKind.METADATA),
        ("fd00:42::42", AddressKind.METADATA),
        ("169.254.42.42", AddressKind.METADATA),
        ("fd00:a9fe:a9fe::1", AddressKind.METADATA),
        ("169.254.0.23", AddressKind.METADATA),
        ("100.96.0.96", AddressKind.METADATA),
        ("0.0.0.0", AddressKind.UNSPECIFIED),
        ("0.1.2.3", AddressKind.UNSPECIFIED),
        ("::", AddressKind.UNSPECIFIED),
        ("224.0.0.1", AddressKind.MULTICAST),
        ("ff02::1", AddressKind.MULTICAST),
        ("255.255.255.255", AddressKind.BROADCAST),
    ],
)
def test_an_address_is_told_by_what_it_leads_to(text: str, kind: AddressKind) -> None:
    assert classify(ip_address(text)) is kind


@pytest.mark.parametrize(
    "text",
    [
        "::ffff:{}",
        "::{}",
        "::ffff:0:{}",
        "64:ff9b::{}",
        "64:ff9b:1::{}",
        "64:ff9b:1:2:3::{}",
        "2600::5efe:{}",
        "2600::200:5efe:{}",
    ],
)
@pytest.mark.parametrize(
    ("inner", "kind"),
    [
        ("127.0.0.1", AddressKind.LOOPBACK),
        ("169.254.169.254", AddressKind.METADATA),
        ("8.8.8.8", AddressKind.PUBLIC),
    ],
)
def test_an_ipv4_address_inside_an_ipv6_one_is_judged_for_itself(
    text: str, inner: str, kind: AddressKind
) -> None:
    assert classify(ip_address(text.format(inner))) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        # 48, 56 and 64 bits of prefix (RFC 6052 2.2).
        ("64:ff9b:1:a9fe:a9:fe00::", AddressKind.METADATA),
        ("64:ff9b:1:22a9:fe:a9fe::", AddressKind.METADATA),
        ("64:ff9b:1:2233:a9:fea9:fe00:0", AddressKind.METADATA),
        ("64:ff9b:1:7f00:0:100::", AddressKind.LOOPBACK),
        ("64:ff9b:1:808:8:800::", AddressKind.PUBLIC),
    ],
)
def test_nat64_for_local_use_is_judged_under_each_length_of_prefix(
    text: str, kind: AddressKind
) -> None:
    assert classify(ip_address(text)) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("fe80::5efe:8.8.8.8", AddressKind.LINK_LOCAL),
        ("fe80::5efe:127.0.0.1", AddressKind.LOOPBACK),
        ("fd12::5efe:8.8.8.8", AddressKind.PRIVATE),
        ("fd12::200:5efe:169.254.169.254", AddressKind.METADATA),
    ],
)
def test_an_isatap_address_is_judged_by_its_prefix_and_by_the_address_in_it(
    text: str, kind: AddressKind
) -> None:
    assert classify(ip_address(text)) is kind


def test_a_6to4_address_is_judged_by_the_address_it_tunnels_to() -> None:
    assert classify(ip_address("2002:7f00:1::")) is AddressKind.LOOPBACK


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "127.0.0.0x1",
    ],
)
def test_every_spelling_that_a_resolver_takes_for_an_address_is_one(host: str) -> None:
    assert parse_host(host) == IPv4Address("127.0.0.1")


@given(
    st.lists(st.integers(0, 2**33), min_size=1, max_size=5),
    st.lists(st.sampled_from(["{}", "0x{:x}", "0{:o}"]), min_size=5, max_size=5),
)
def test_numbers_are_read_as_the_c_library_reads_them(numbers: list[int], forms: list[str]) -> None:
    host = ".".join(form.format(number) for form, number in zip(forms, numbers, strict=False))
    try:
        expected = IPv4Address(socket.inet_aton(host))
    except OSError:
        with pytest.raises(ValueError, match="address"):
            parse_host(host)
    else:
        assert parse_host(host) == expected


@given(st.text(max_size=30))
def test_a_host_is_a_name_an_address_or_a_value_error(host: str) -> None:
    try:
        parse_host(host)
    except ValueError:
        assert STANDALONE.check_host(host) is not None


@given(st.integers(0, 2**32 - 1))
def test_mapping_into_ipv6_never_changes_the_answer(number: int) -> None:
    plain = IPv4Address(number)
    mapped = IPv6Address(f"::ffff:{plain}")
    policy = AddressPolicy()
    assert (policy.check(plain) is None) == (policy.check(mapped) is None)


@pytest.mark.parametrize("host", ["999.1.1.1", "1.2.3.4.5", "host.1", "0x7g.1", "09.1.1.1", "::g"])
def test_a_host_that_ends_in_a_number_but_is_no_address_is_refused(host: str) -> None:
    assert EVERYTHING.check_host(host) is not None


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "a.localhost", "ip6-localhost"])
def test_names_of_this_machine_need_loopback_to_be_allowed(host: str) -> None:
    assert is_local_name(host)
    assert "loopback" in (AddressPolicy().check_host(host) or "")
    assert STANDALONE.check_host(host) is None


def test_an_unusual_spelling_is_refused_even_where_the_address_is_allowed() -> None:
    assert "127.0.0.1" in (STANDALONE.check_host("0x7f.1") or "")
    assert STANDALONE.check_host("127.0.0.1") is None


@pytest.mark.parametrize(
    ("address", "allowed_by"),
    [
        ("127.0.0.1", AddressPolicy(allow_loopback=True)),
        ("::1", AddressPolicy(allow_loopback=True)),
        ("169.254.1.1", AddressPolicy(allow_link_local=True)),
        ("169.254.169.254", AddressPolicy(allow_metadata=True)),
    ],
)
def test_each_kind_is_refused_until_it_is_allowed(address: str, allowed_by: AddressPolicy) -> None:
    assert AddressPolicy().check(address) is not None
    assert allowed_by.check(address) is None


def test_allowing_link_local_addresses_does_not_open_the_metadata_service() -> None:
    policy = AddressPolicy(allow_link_local=True, allow_loopback=True)
    assert policy.check("169.254.169.254") is not None
    assert policy.check("::ffff:169.254.169.254") is not None


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"])
def test_what_is_no_listener_is_never_allowed(address: str) -> None:
    assert EVERYTHING.check(address) is not None


def test_private_addresses_can_be_refused_too() -> None:
    assert AddressPolicy().check("10.0.0.1") is None
    assert "private" in (AddressPolicy(allow_private=False).check("10.0.0.1") or "")


def test_a_host_outside_ascii_is_refused_since_a_resolver_may_fold_it_into_digits() -> None:
    assert "xn--" in (EVERYTHING.check_host("１２７.0.0.1") or "")


def test_the_brackets_of_a_url_are_understood() -> None:
    assert parse_host("[::1]") == IPv6Address("::1")
    assert STANDALONE.check_host("[::1]") is None
    assert AddressPolicy().check_host("[::1]") is not None


@pytest.mark.parametrize("host", ["[1.2.3.4]", "[host]", "[abc]", "[:]", "[::1::2]", "[]", ""])
def test_only_an_ipv6_address_may_stand_in_brackets_and_some_host_must(host: str) -> None:
    assert EVERYTHING.check_host(host) is not None


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://host", "host"),
        ("https://host:8443/a:b", "host"),
        ("http://user:pw@host/@b", "host"),
        ("http://[::1]:80/x", "[::1]"),
        ("http://[::1::2]/", "[::1::2]"),
        ("http://host?q=@x", "host"),
        ("http://", ""),
        ("nothing", ""),
    ],
)
def test_the_host_of_a_url_is_taken_as_it_is_written(url: str, host: str) -> None:
    assert host_of(url) == host


@given(st.lists(st.sampled_from(URL_PIECES), max_size=7).map("".join))
def test_the_host_of_a_url_is_the_one_that_is_connected_to(url: str) -> None:
    if all(rule.holds(url) for rule in URL.rules):
        try:
            connected = parse_target(url).host
        except InvalidDestinationError:
            assert EVERYTHING.check_host(host_of(url)) is not None
        else:
            assert host_of(url).strip("[]").lower() == connected


def test_a_name_is_left_for_the_check_after_resolution() -> None:
    assert parse_host("alerts.example.com") is None
    assert AddressPolicy().check_host("alerts.example.com") is None
