"""What the end-to-end tests stand on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from support.pywbem_peer import PywbemPeer, pywbem_peer
from support.system_disk import SystemDisk


@pytest.fixture(scope="session")
def pywbem_process() -> Iterator[PywbemPeer]:
    """The process of pywbem's listener: importing pywbem takes a second, so it stays."""
    with pywbem_peer() as peer:
        yield peer


@pytest_asyncio.fixture
async def pywbem(pywbem_process: PywbemPeer) -> PywbemPeer:
    """pywbem's listener, started, with an empty record."""
    await pywbem_process.start()
    await pywbem_process.forget()
    return pywbem_process


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A folder for resources."""
    folder = tmp_path / "config"
    folder.mkdir()
    return folder


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a journal may be; there is none yet."""
    return tmp_path / "journal"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SystemDisk]:
    """The disk of every journal that is opened, which does what a test says."""
    made = SystemDisk()
    monkeypatch.setattr("pillion_sidecar.journal_runtime.SystemFiles", made.files)
    yield made
    made.go_on()
