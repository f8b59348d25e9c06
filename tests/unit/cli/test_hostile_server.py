"""What a server that is no deliverer answers does nothing to the terminal."""

from collections.abc import Iterator

import pytest
from aiohttp import web

from pillion_cli.exits import CommandError, Exit
from pillion_cli.main import main
from support.served import served

#: Clears the screen, sets the title of the window, rings, and reverses the writing direction.
HOSTILE = "\x1b[2J\x1b]0;taken\x07\x00\u202e\nall is well"
ESCAPED = r"\u001b[2J\u001b]0;taken\u0007\u0000\u202e\u000aall is well"


async def _refuse(_: web.Request) -> web.Response:
    return web.json_response({"reason": HOSTILE}, status=500)


def _application() -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _refuse)
    return app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(_application) as url:
        yield url


@pytest.mark.parametrize(
    "command",
    [
        ("queues",),
        ("queues", "siem"),
        ("queues", "--purge", "siem", "--yes"),
        ("explain", "a-1"),
        ("test", "siem"),
        ("tail",),
        ("drain",),
        ("drain", "--best-effort"),
        ("discarded", "list"),
        ("outcomes",),
        ("journals",),
        ("suspend", "siem"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_a_reason_is_shown_in_one_line_without_control_characters(
    command: tuple[str, ...], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*command, "--server", url])
    assert code == (Exit.OK if "--best-effort" in command else Exit.FAILED)
    captured = capsys.readouterr()
    lines = [line for line in (captured.out + captured.err).split("\n") if "HTTP 500" in line]
    assert len(lines) == 1
    assert ESCAPED in lines[0]
    assert (captured.out + captured.err).replace("\n", "").isprintable()


def test_an_error_is_printable_and_as_it_was_if_it_is() -> None:
    assert str(CommandError(HOSTILE)) == ESCAPED
    assert str(CommandError("Grüße: \\u001b")) == "Grüße: \\u001b"
