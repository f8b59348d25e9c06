"""A program for pods: sends the requests that it reads, and prints what became of each.

Standard input is a JSON list of objects: ``url``, and maybe ``method``, ``headers``, ``body``,
``ca`` (PEM), ``token_file`` (shown as a bearer's), ``raw`` (sent by TLS to the host and port of
``url`` instead of a request). What is printed is as long: ``[status, headers, body]``, or ``[null,
{}, error]``.
"""

import json
import socket
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

WITHIN = 20
MOST = 4_000_000

Answer = tuple[int | None, dict[str, str], str]


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def context(ca: str | None) -> ssl.SSLContext:
    """What verifies by this authority, or not at all."""
    if ca is not None:
        return ssl.create_default_context(cadata=ca)
    found = ssl.create_default_context()
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found


def send(asked: dict[str, Any]) -> Answer:
    """One request."""
    tls = context(asked.get("ca"))
    if "raw" in asked:
        return raw(asked, tls)
    body = asked.get("body")
    request = urllib.request.Request(
        asked["url"], data=None if body is None else body.encode(), method=asked.get("method")
    )
    for name, value in (asked.get("headers") or {}).items():
        request.add_header(name, value)
    if "token_file" in asked:
        request.add_header("Authorization", f"Bearer {Path(asked['token_file']).read_text()}")
    opener = urllib.request.build_opener(_Stay, urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(request, timeout=WITHIN) as answer:
            return answer.status, dict(answer.headers), answer.read(MOST).decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read(MOST).decode()
    except (OSError, ValueError) as error:
        return None, {}, repr(error)


def raw(asked: dict[str, Any], tls: ssl.SSLContext) -> Answer:
    """Bytes that are no request."""
    to = urllib.parse.urlsplit(asked["url"])
    assert to.hostname is not None
    try:
        plain = socket.create_connection((to.hostname, to.port or 443), timeout=WITHIN)
        with tls.wrap_socket(plain, server_hostname=to.hostname) as connection:
            connection.sendall(asked["raw"].encode())
            return 0, {}, connection.recv(65536).decode(errors="replace")
    except OSError as error:
        return None, {}, repr(error)


if __name__ == "__main__":
    json.dump([send(one) for one in json.load(sys.stdin)], sys.stdout)
