"""The fixtures of ``tests/conftest.py`` fail the tests that they should fail."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = (Path(__file__).parents[2] / "conftest.py").read_text(encoding="utf-8")

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
markers = spark: needs a JVM
"""


@pytest.fixture
def sandbox(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makeini(INI)
    return pytester


def outcomes(sandbox: pytest.Pytester, source: str) -> dict[str, int]:
    sandbox.makepyfile(source)
    return sandbox.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist").parseoutcomes()


def test_a_leaked_task_fails_its_test_alone(sandbox: pytest.Pytester) -> None:
    result = outcomes(
        sandbox,
        """
        import asyncio

        kept = []

        async def test_leaks():
            kept.append(asyncio.create_task(asyncio.Event().wait()))

        async def test_waits_for_its_task():
            await asyncio.create_task(asyncio.sleep(0))

        async def test_cancels_its_task():
            asyncio.create_task(asyncio.Event().wait()).cancel()
        """,
    )
    assert result == {"passed": 3, "errors": 1}


def test_a_leaked_socket_fails_its_test_alone(sandbox: pytest.Pytester) -> None:
    result = outcomes(
        sandbox,
        """
        import socket

        kept = []

        def test_leaks():
            kept.append(socket.socket())

        def test_closes():
            socket.socket().close()

        async def test_the_loop_has_sockets_of_its_own():
            pass
        """,
    )
    assert result == {"passed": 3, "errors": 1}


def test_blocking_the_loop_fails_and_blocking_elsewhere_does_not(sandbox: pytest.Pytester) -> None:
    result = outcomes(
        sandbox,
        """
        import asyncio, time

        async def test_blocks():
            time.sleep(0)

        async def test_sleeps_in_a_thread():
            await asyncio.to_thread(time.sleep, 0)

        def test_has_no_loop():
            time.sleep(0)
        """,
    )
    assert result == {"passed": 2, "failed": 1}


def test_reading_a_file_from_a_room_of_ours_blocks_the_loop(sandbox: pytest.Pytester) -> None:
    sandbox.mkpydir("pillion_sidecar_like")
    result = outcomes(
        sandbox,
        """
        import os, types
        import pillion_sidecar

        # Code whose frames say that it lies in the deliverer's room.
        room = os.path.join(pillion_sidecar.__path__[0], "invented.py")
        source = "def read(path):\\n    with open(path) as file:\\n        return file.read()\\n"
        module = types.ModuleType("invented")
        exec(compile(source, room, "exec"), module.__dict__)

        async def test_blocks(tmp_path):
            path = tmp_path / "file"
            path.write_text("the test itself may")
            module.read(path)
        """,
    )
    assert result == {"failed": 1}
