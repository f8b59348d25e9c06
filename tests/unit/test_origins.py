"""Requests that a web page has a browser send: refused where no token is asked for."""

import pytest
from aiohttp.test_utils import make_mocked_request

from pillion_sidecar.http_errors import OriginPolicy

LOOPBACK = OriginPolicy("127.0.0.1")


def asked(policy: OriginPolicy, **headers: str) -> str | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = policy.refuse(make_mocked_request("POST", "/v1/queues/a/purge", headers=named))
    if answer is None:
        return None
    assert answer.status == 403
    return str(answer.text)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8288",
        "localhost:8288",
        "LOCALHOST.",
        "[::1]:8288",
        "127.1.2.3",
        "a.localhost",
        "",
    ],
)
def test_curl_a_port_forward_and_the_command_are_let_in(host: str) -> None:
    assert asked(LOOPBACK, Host=host) is None
    assert asked(LOOPBACK) is None


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "localhost.attacker.example:8288",
        "8.8.8.8",
        "pillion",
        "[::1",
        "127.0.0.1.nip.io",
        "127.0.0.1:8288.attacker.example",
        "attacker.example@127.0.0.1",
        "127.0.0.1/attacker.example",
        "127.0.0.1:99999",
    ],
)
def test_a_name_that_was_pointed_here_is_refused(host: str) -> None:
    assert "is not where this listens" in str(asked(LOOPBACK, Host=host))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://attacker.example:8288"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_a_foreign_page_is_refused(headers: dict[str, str]) -> None:
    assert "a web page may not" in str(asked(LOOPBACK, Host="localhost:8288", **headers))


def test_a_page_led_here_by_its_own_name_is_refused_by_its_origin_alone() -> None:
    request = make_mocked_request(
        "POST", "/", headers={"Host": "evil.example", "Origin": "http://evil.example"}
    )
    assert LOOPBACK.refuse_page(request) is not None
    # A publisher's own name for this machine is good.
    request = make_mocked_request("POST", "/", headers={"Host": "sidecar.internal"})
    assert LOOPBACK.refuse_page(request) is None


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_page_of_this_very_origin_is_let_in(site: str) -> None:
    here = {"Host": "localhost:8288", "Origin": "http://localhost:8288", "Sec_Fetch_Site": site}
    assert asked(LOOPBACK, **here) is None


@pytest.mark.parametrize(
    ("listens", "host"),
    [
        ("10.1.2.3", "10.1.2.3:8288"),
        ("0.0.0.0", "10.1.2.3:8288"),
        ("::", "[fd00::1]:8288"),
        ("0.0.0.0", "pillion:8288"),
        ("pillion.example.com", "pillion.example.com:8288"),
        ("0.0.0.0", "localhost:8288"),
    ],
)
def test_an_address_that_it_was_bound_to_on_purpose_is_good(listens: str, host: str) -> None:
    assert asked(OriginPolicy(listens), Host=host) is None
    assert asked(OriginPolicy(listens), Host="attacker.example") is not None
