"""What all peers have in common: four verbs, and what is said of them."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import programs
from benchmarks.peers.events import healthy_name, hung_name
from benchmarks.peers.processes import ProcessGroup, free_port

#: What is configured of each peer: seconds until an attempt is given up, and until the next one.
TIMEOUT = 5
RETRY = 1
#: The programs between a queue and the listeners, as one would write them in an hour.
WORKERS = Path(__file__).parent / "workers"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer runs, and which listeners it has."""

    folder: Path
    #: The URL of each listener by its name.
    urls: dict[str, str]


def urls_of(healthy: Sequence[int], hung: Sequence[int]) -> dict[str, str]:
    ports = {healthy_name(place): port for place, port in enumerate(healthy)}
    ports |= {hung_name(place): port for place, port in enumerate(hung)}
    return {name: f"http://127.0.0.1:{port}/{name}" for name, port in ports.items()}


class Peer(ABC):
    name: str

    def __init__(self) -> None:
        self.processes: ProcessGroup
        #: What its publisher is told; :meth:`configure` sets it.
        self.address = ""

    @property
    def publisher(self) -> tuple[str, str]:
        """The module of its sender, and the interpreter that has the module's library."""
        return type(self).__module__, sys.executable

    @abstractmethod
    def missing(self) -> str | None:
        """What is missing on this machine, and how it is had; None: nothing."""

    @abstractmethod
    def configure(self, place: Place) -> None:
        """Write its configuration, and choose its ports."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and return when it takes events. After :meth:`kill` it goes on."""

    def stop(self) -> None:
        self.processes.stop()

    def kill(self) -> None:
        """End all of its processes at once, as a crash of the machine's memory would."""
        self.processes.kill()


class WithLibraries(Peer):
    """One that is made of Python programs with libraries that the project lacks. Its workers read
    the listeners from ``urls.json``."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0

    @property
    def publisher(self) -> tuple[str, str]:
        return type(self).__module__, str(programs.PYTHON)

    def configure(self, place: Place) -> None:
        self.processes = ProcessGroup(place.folder)
        self.port = free_port()
        self.address = str(self.port)
        (place.folder / "urls.json").write_text(json.dumps(place.urls), encoding="utf-8")
