"""The Redis of the peers that are a queue of jobs in Redis."""

from benchmarks.peers import programs
from benchmarks.peers.processes import ProcessGroup, wait_until_listening


def missing() -> str | None:
    if programs.find("redis-server") is None:
        return f"no redis-server: {programs.FETCH}"
    return None if programs.has_libraries() else f"no libraries: {programs.FETCH}"


def start(port: int, group: ProcessGroup) -> None:
    """With its append-only file, which Debian's configuration leaves off."""
    program = programs.find("redis-server")
    assert program is not None
    place = ["--port", str(port), "--bind", "127.0.0.1"]
    kept = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
    group.start([str(program), *place, *kept], programs.environment_of(program))
    wait_until_listening(port, group)
