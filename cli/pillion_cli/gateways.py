"""The options of ``pillion sidecar`` that make a gateway, or lead to one."""

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from pillion_cli.exits import CommandFailed, Exit
from pillion_sidecar.settings import GatewayAccess, TLSFiles

#: Stands for the name of a gateway's IndicationService.
SERVICE = "{service}"


def add_gateway_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    door = parser.add_argument_group(
        "gateway", "A gateway's door. The files are read anew when they change, and may come later."
    )
    for name, what in (
        ("intake-tls-certificate", "serve intake over TLS with this certificate, in PEM"),
        ("intake-tls-key", "the certificate's key, in PEM"),
        ("token-keys", "let in the bearers of tokens that these keys verify (token-keys.json)"),
    ):
        door.add_argument(f"--{name}", metavar="FILE", type=Path, help=what)
    relay = parser.add_argument_group("relay", "The gateway that this deliverer relays to.")
    relay.add_argument(
        "--gateway",
        metavar="URL",
        help=f"where it is; {SERVICE} stands for the name of its IndicationService",
    )
    relay.add_argument(
        "--gateway-ca",
        metavar="FILE",
        type=Path,
        help="the authorities that its certificate may come from, in PEM [those of the system]",
    )
    relay.add_argument(
        "--gateway-token", metavar="FILE", type=Path, help="the token to show there [none]"
    )


def intake_tls(args: argparse.Namespace) -> TLSFiles | None:
    """Return with what intake is served over TLS. Raises CommandFailed."""
    certificate, key = args.intake_tls_certificate, args.intake_tls_key
    if certificate is None and key is None:
        return None
    if key is None:
        raise _wrong("--intake-tls-certificate needs --intake-tls-key FILE")
    if certificate is None:
        raise _wrong("--intake-tls-key needs --intake-tls-certificate FILE")
    return TLSFiles(certificate=certificate, key=key)


def token_keys(args: argparse.Namespace) -> Path | None:
    """Return the file of the keys of tokens. Raises CommandFailed."""
    keys: Path | None = args.token_keys
    if keys is None:
        return None
    if args.intake_tls_certificate is None:
        raise _wrong(
            "--token-keys needs --intake-tls-certificate FILE: tokens do not travel in the clear"
        )
    if args.administration is None:
        raise _wrong(
            "--token-keys needs --administration HOST:PORT, such as 127.0.0.1:8290: whoever may"
            " publish may not drain and purge"
        )
    return keys


def gateway_access(args: argparse.Namespace) -> GatewayAccess | None:
    """Return how to reach the gateway. Raises CommandFailed."""
    url: str | None = args.gateway
    if url is None:
        for name in ("gateway_ca", "gateway_token"):
            if getattr(args, name) is not None:
                raise _wrong(f"--{name.replace('_', '-')} needs --gateway URL")
        return None
    scheme = _scheme(url.replace(SERVICE, "service"))
    if scheme is None:
        raise _wrong(f"--gateway: {url!r} is not a URL such as https://pillion-{SERVICE}.team:8288")
    if scheme == "http" and (args.gateway_ca or args.gateway_token):
        raise _wrong(f"--gateway: {url!r} is not https, and a token does not travel in the clear")
    return GatewayAccess(url=url, ca=args.gateway_ca, token=args.gateway_token)


def _scheme(url: str) -> str | None:
    """Return the scheme of a URL that leads to a host and no further; None for any other."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    return parts.scheme if known and bare else None


def _wrong(text: str) -> CommandFailed:
    return CommandFailed(text, code=Exit.USAGE)
