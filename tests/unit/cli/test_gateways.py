"""The options that make a gateway's door, or lead to one."""

import argparse
from pathlib import Path

import pytest

from pillion_cli.commands import sidecar
from pillion_cli.commands.sidecar import gateway_access, intake_tls, token_keys
from pillion_cli.exits import CommandError, Exit
from pillion_sidecar.settings import GatewayEndpoint, TLSFiles

DOOR = ("--intake-tls-certificate", "c", "--intake-tls-key", "k")


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    sidecar.add_arguments(parser)
    return parser.parse_args(["--resources", "r", *given])


def test_without_them_there_is_no_door_and_no_gateway() -> None:
    args = arguments()
    assert (intake_tls(args), token_keys(args), gateway_access(args)) == (None, None, None)


def test_a_gateway_has_a_certificate_and_keys() -> None:
    args = arguments(*DOOR, "--token-keys", "t", "--administration", "127.0.0.1:8290")
    assert intake_tls(args) == TLSFiles(certificate=Path("c"), key=Path("k"))
    assert token_keys(args) == Path("t")


def test_a_sidecar_knows_where_gateways_are() -> None:
    url = "https://pillion-{service}.team.svc:8288"
    args = arguments("--gateway", url, "--gateway-ca", "ca", "--gateway-token", "token")
    assert gateway_access(args) == GatewayEndpoint(url=url, ca=Path("ca"), token=Path("token"))
    for url in ("http://127.0.0.1:8288", "http://127.0.0.1:{service}", "http://{service}:8288"):
        assert gateway_access(arguments("--gateway", url)) == GatewayEndpoint(url=url)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--intake-tls-certificate", "c"), "--intake-tls-certificate needs --intake-tls-key FILE"),
        (("--intake-tls-key", "k"), "--intake-tls-key needs --intake-tls-certificate FILE"),
        (("--token-keys", "t"), "--token-keys needs --intake-tls-certificate FILE"),
        ((*DOOR, "--token-keys", "t"), "--token-keys needs --administration HOST:PORT"),
        (("--gateway-ca", "c"), "--gateway-ca needs --gateway URL"),
        (("--gateway-token", "t"), "--gateway-token needs --gateway URL"),
        (("--gateway", "gateway:8288"), "--gateway: 'gateway:8288' is not a URL such as https://"),
        (("--gateway", "https://"), "is not a URL"),
        (("--gateway", "https://a:b@c"), "is not a URL"),
        (("--gateway", "https://a:99999"), "is not a URL"),
        (("--gateway", "https://a/path"), "is not a URL"),
        (("--gateway", "https://a?b"), "is not a URL"),
        (("--gateway", "http://a", "--gateway-token", "t"), "is never sent unencrypted"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(given: tuple[str, ...], says: str) -> None:
    args = arguments(*given)
    with pytest.raises(CommandError) as caught:
        intake_tls(args), token_keys(args), gateway_access(args)
    assert says in str(caught.value)
    assert caught.value.code == Exit.USAGE
