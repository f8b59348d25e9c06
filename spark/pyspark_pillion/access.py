"""Where a task's deliverer is, whom it trusts there, and the token that it shows at a gateway.

A token is in a file that the kubelet renews, on each pod of the job. It is read in the task, for
each request: no option holds it, so neither a plan nor a log nor Spark's pages do.
"""

import re
import ssl
from dataclasses import dataclass
from typing import NamedTuple

#: Bytes of a token's file that are read.
LONGEST_TOKEN = 16 * 1024

#: RFC 6750, 2.1. Whatever else it were would stand in the message of the header that it breaks.
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class Address(NamedTuple):
    """A deliverer's intake."""

    host: str
    port: int
    #: Whether it speaks TLS, as a gateway does.
    encrypted: bool = False


class AccessError(OSError):
    """There is no token to show, or no authority to trust, just now. Files may be renewed, so it is
    tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a task has to get in with: paths, never what is in the files."""

    ca_file: str | None = None
    token_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return what a gateway's certificate is verified with. Raises AccessError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except ssl.SSLError:
            raise AccessError(
                f"option caFile: {self.ca_file}: there are no certificates in PEM in it"
            ) from None
        except OSError as error:
            raise AccessError(f"option caFile: {self.ca_file}: {error.strerror}") from None
        # RFC 9525 6.3: a name counts in subjectAltName only.
        context.hostname_checks_common_name = False
        return context

    def headers(self) -> dict[str, str]:
        """Return the headers that let a request in. Raises AccessError."""
        if self.token_file is None:
            return {}
        try:
            with open(self.token_file, "rb") as file:
                token = file.read(LONGEST_TOKEN + 1).strip()
        except OSError as error:
            raise AccessError(f"option tokenFile: {self.token_file}: {error.strerror}") from None
        if len(token) > LONGEST_TOKEN or _TOKEN.fullmatch(token) is None:
            raise AccessError(f"option tokenFile: {self.token_file}: there is no token in it")
        return {"Authorization": f"Bearer {token.decode('ascii')}"}
