"""What the commands show at a gateway, and whom they trust."""

import socket
import threading
from argparse import Namespace
from pathlib import Path

import pytest

from pillion_cli.client import Access, Answer, DelivererClient, NoDeliverer, Refused, Unreachable
from pillion_cli.exits import CommandError, Exit
from pillion_cli.servers import server_of
from support.fake_deliverer import FakeDeliverer, status


def given(server: str, **options: Path) -> Namespace:
    return Namespace(
        **{"server": server, "context": None, "ca": None, "token_file": None} | options
    )


def test_a_token_is_read_for_each_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    access = Access(token_file=file)
    for token in ("a.b.c", "d.e.f-_="):
        file.write_text(f"{token}\n")
        assert access.headers() == {"Authorization": f"Bearer {token}"}
    assert Access().headers() == {}


@pytest.mark.parametrize("content", [b"", b"a b", b"a\r\nHost: b", b"\xff", b"a" * 20_000])
def test_what_is_no_token_is_not_shown_to_anybody(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(CommandError, match="no valid token") as caught:
        Access(token_file=file).headers()
    assert "Host" not in str(caught.value)


def test_a_token_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"--token-file .*token: No such file"):
        Access(token_file=tmp_path / "token").headers()


def test_a_file_that_a_variable_names_is_told_with_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "none"
    monkeypatch.setenv("PILLION_TOKEN_FILE", str(file))
    monkeypatch.setenv("PILLION_CA", str(file))
    access = server_of(given("https://gateway")).access
    with pytest.raises(CommandError, match=f"^PILLION_TOKEN_FILE {file}: No such file"):
        access.headers()
    with pytest.raises(CommandError, match=f"^PILLION_CA {file}: No such file"):
        access.context()
    access = server_of(given("https://gateway", ca=file, token_file=file)).access
    with pytest.raises(CommandError, match=f"^--token-file {file}: No such file"):
        access.headers()


def test_variables_stand_for_the_options_at_an_https_url_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILLION_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text("a.b.c")
    for url, shown in (("https://gateway", {"Authorization": "Bearer a.b.c"}), ("http://one", {})):
        assert server_of(given(url)).access.headers() == shown


def test_a_token_does_not_travel_in_the_clear(tmp_path: Path) -> None:
    for access, option in (
        (Access(token_file=tmp_path / "token"), "--token-file"),
        (Access(ca=tmp_path / "ca"), "--ca"),
    ):
        with pytest.raises(CommandError, match=f"{option} needs an https URL") as caught:
            DelivererClient("127.0.0.1:8288", timeout=1, access=access)
        assert caught.value.code == Exit.USAGE


def test_a_name_counts_in_the_subject_alternative_names_only() -> None:
    assert not Access().context().hostname_checks_common_name


def test_authorities_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    for why in ("No such file", "no certificates in PEM"):
        with pytest.raises(CommandError, match=rf"--ca .*ca\.crt: {why}") as caught:
            DelivererClient("https://gateway", timeout=1, access=Access(ca=file))
        assert caught.value.code == Exit.USAGE
        file.write_text("none")


def test_https_for_a_deliverer_without_tls_is_told() -> None:
    def answer(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=(server,), daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        told = f"{url} does not use TLS: write http:// instead of https://"
        with pytest.raises(Unreachable, match=told), DelivererClient(url, timeout=10) as client:
            client.get("/v1/queues")
        thread.join()


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "the intake address serves no '/v1/x/v1/x'; did you mean /v1/x?",
            "the intake address serves no '/v1/x/v1/x'; give --server or PILLION_SERVER without a"
            " path",
        ),
        ("no such publisher", "no such publisher"),
    ],
)
def test_the_path_of_a_url_is_named_where_nothing_is_served(reason: str, told: str) -> None:
    with FakeDeliverer() as deliverer:
        deliverer.script.append(status(404, document={"reason": reason}))
        with DelivererClient(f"{deliverer.url}/v1/x", timeout=10) as client:
            assert client.post("/v1/x").text() == told


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b""])
def test_an_answer_of_another_server_names_the_options_to_check(body: bytes) -> None:
    with pytest.raises(NoDeliverer, match=r"HTTP 200 without a JSON object.*--server") as caught:
        Answer(200, body).document()
    assert "hello" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{..}",
            "it broke off after 4 bytes; try again",
        ),
        (b"SSH-2.0-OpenSSH\r\n", "it does not speak HTTP; name another with --server"),
    ],
)
def test_an_answer_that_is_none_is_told_in_a_sentence(answer: bytes, told: str) -> None:
    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unreachable, match=told), DelivererClient(url, timeout=10) as client:
            client.get("/v1/queues")
        thread.join()


def test_a_redirect_names_its_target_and_what_to_give() -> None:
    answer = Answer(302, b"", headers={"location": "http://me:secret@h/x"})
    assert str(answer.refusal()) == (
        "HTTP 302: (no text); a redirect to http://…@h/x is not followed: give the deliverer's own"
        " address"
    )
    assert "a redirect is not followed" in str(Answer(307, b"").refusal())


def test_a_name_that_no_request_can_have_is_told_before_it_is_sent() -> None:
    with (
        DelivererClient("http://127.0.0.1:1", timeout=1) as client,
        pytest.raises(CommandError, match="too long: a request has 8,000 characters") as caught,
    ):
        client.get(f"/v1/queues/{'x' * 10_000}")
    assert caught.value.code == Exit.USAGE


def test_a_refusal_for_lack_of_a_token_names_the_option() -> None:
    with pytest.raises(Refused, match=r"HTTP 401: there is no token; --token-file"):
        Answer(401, b'{"reason": "there is no token"}').document()
    with pytest.raises(Refused, match=r"HTTP 403: no$"):
        Answer(403, b'{"reason": "no"}').document()
