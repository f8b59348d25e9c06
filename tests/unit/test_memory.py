"""The memory limit of a container, and the connections that it leaves room for."""

from pathlib import Path

import pytest

from pillion_sidecar.memory import MIB, container_limit, tls_connections


@pytest.mark.parametrize(
    ("content", "limit"), [("402653184\n", 384 * MIB), ("max\n", None), ("", None)]
)
def test_the_limit_is_what_the_container_has(
    tmp_path: Path, content: str, limit: int | None
) -> None:
    file = tmp_path / "memory.max"
    file.write_text(content)
    assert container_limit((tmp_path / "none", file)) == limit


def test_without_a_limit_there_are_as_many_as_there_may_be() -> None:
    assert tls_connections(None, bodies=0, plain=0, waiting=0, most=1000) == 1000
    assert tls_connections(1 << 62, bodies=64 * MIB, plain=128, waiting=480, most=1000) == 1000


def test_little_memory_leaves_few_connections_and_one_at_least() -> None:
    few = tls_connections(256 * MIB, bodies=64 * MIB, plain=128, waiting=480, most=1000)
    assert 200 < few < 300
    assert tls_connections(64 * MIB, bodies=64 * MIB, plain=128, waiting=480, most=1000) == 1
