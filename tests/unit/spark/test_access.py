"""How a task gets in at a gateway: over TLS, with a token that is renewed."""

import pickle
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from pyspark_pillion.deliverer import FAILURES, Access, AccessError, Address, Deliverer
from pyspark_pillion.options import parse_options


@contextmanager
def gateway(authority: trustme.CA, shown: list[str | None]) -> Iterator[Address]:
    """Answers 200 over TLS, and notes the Authorization of each request."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            shown.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Address("127.0.0.1", server.server_address[1], encrypted=True)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def access(authority: trustme.CA, tmp_path: Path) -> Access:
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    authority.cert_pem.write_to_path(ca)
    token.write_text("first.token.x\n")
    return Access(ca_file=str(ca), token_file=str(token))


def test_each_request_shows_the_token_as_it_is_by_then(
    authority: trustme.CA, access: Access
) -> None:
    shown: list[str | None] = []
    assert access.token_file is not None
    with gateway(authority, shown) as address:
        deliverer = Deliverer(address, timeout=10, access=access)
        for token in ("first.token.x", "second.token.y"):
            Path(access.token_file).write_text(token)
            assert deliverer.post("/v1/indications", query={}, body=b"{}").status == 200
        # On one connection.
        assert deliverer.connections == 1
        deliverer.close()
    assert shown == ["Bearer first.token.x", "Bearer second.token.y"]


def test_another_authoritys_gateway_is_shown_nothing(access: Access) -> None:
    shown: list[str | None] = []
    with gateway(trustme.CA(), shown) as address:
        deliverer = Deliverer(address, timeout=10, access=access)
        with pytest.raises(ssl.SSLCertVerificationError):
            deliverer.post("/v1/indications", query={}, body=b"{}")
    assert shown == []


def test_a_name_counts_in_the_subject_alternative_names_only(access: Access) -> None:
    assert not access.context().hostname_checks_common_name


@pytest.mark.parametrize("content", [None, b"", b"two words", b"a\r\nHost: b", b"a" * 20_000])
def test_a_token_that_is_not_there_is_a_failure_like_that_of_a_connection(
    access: Access, content: bytes | None
) -> None:
    assert access.token_file is not None
    token = Path(access.token_file)
    token.unlink() if content is None else token.write_bytes(content)
    with pytest.raises(AccessError, match="option tokenFile: /") as caught:
        access.headers()
    # So it is tried again: the kubelet may be about to renew it.
    assert isinstance(caught.value, FAILURES)
    assert "Host" not in str(caught.value)


def test_authorities_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    for why in ("No such file", "no certificates"):
        with pytest.raises(AccessError, match=f"option caFile: .*{why}"):
            Access(ca_file=str(file)).context()
        file.write_text("none")


def test_what_goes_to_the_executors_has_the_paths_alone(access: Access) -> None:
    options = parse_options(
        {
            "source": "s",
            "url": "https://gateway",
            "caFile": str(access.ca_file),
            "tokenFile": str(access.token_file),
        }
    )
    for told in (repr(options), pickle.dumps(options).decode("latin-1"), repr(access)):
        assert "first.token" not in told
