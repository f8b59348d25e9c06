"""How a command gets in at a gateway: the options for it, and the token, which changes."""

import argparse
import os
import re
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from pillion_cli.exits import CommandError, Exit

#: Bytes of a token's file that are read.
MOST_TOKEN_BYTES = 16 * 1024
#: RFC 6750, 2.1. Whatever else it were would stand in the message of the header that it breaks.
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
#: What stands for the options where they are not given, and only for an https URL.
CA_VARIABLE, TOKEN_VARIABLE = "PILLION_CA", "PILLION_TOKEN_FILE"


def add_access_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ca",
        metavar="FILE",
        type=Path,
        help="the CA certificates that verify an https URL, in PEM"
        f" [${CA_VARIABLE}, else the system's]",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="send the token in this file, as a gateway requires; it is read again for each request"
        f" [${TOKEN_VARIABLE}]",
    )


class Access:
    """What a client shows, and whom it trusts."""

    def __init__(self, *, ca: Path | None = None, token_file: Path | None = None) -> None:
        self._ca = ca
        self._token_file = token_file

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Access":
        """Return what a command line says, and the environment where it says nothing."""
        assumed = os.environ if urlsplit(args.to).scheme == "https" else {}
        return cls(
            ca=args.ca or _path(assumed.get(CA_VARIABLE)),
            token_file=args.token_file or _path(assumed.get(TOKEN_VARIABLE)),
        )

    def check(self, url: str) -> None:
        """Raise :class:`CommandError` where this is not for such a URL."""
        if urlsplit(url).scheme == "https":
            return
        for option, given in (("--ca", self._ca), ("--token-file", self._token_file)):
            if given is not None:
                raise CommandError(
                    f"{option} needs an https URL, and {url!r} is not one", code=Exit.USAGE
                )

    def context(self) -> ssl.SSLContext:
        """Return what certificates are verified with. Raises :class:`CommandError`."""
        try:
            context = ssl.create_default_context(cafile=self._ca)
        except ssl.SSLError:
            raise CommandError(
                f"--ca {self._ca} contains no certificates in PEM", code=Exit.USAGE
            ) from None
        except OSError as error:
            raise CommandError(f"--ca {self._ca}: {error.strerror}", code=Exit.USAGE) from None
        # RFC 9525 6.3: a name counts in subjectAltName only.
        context.hostname_checks_common_name = False
        return context

    def headers(self) -> dict[str, str]:
        """Return the headers of a request, with the token as it is now.

        Raises :class:`CommandError`.
        """
        if self._token_file is None:
            return {}
        try:
            with self._token_file.open("rb") as file:
                token = file.read(MOST_TOKEN_BYTES + 1).strip()
        except OSError as error:
            raise CommandError(f"--token-file {self._token_file}: {error.strerror}") from None
        if len(token) > MOST_TOKEN_BYTES or _TOKEN.fullmatch(token) is None:
            raise CommandError(f"--token-file {self._token_file} contains no token")
        return {"Authorization": f"Bearer {token.decode('ascii')}"}


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
