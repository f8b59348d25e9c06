"""What the end-to-end tests stand on."""

from collections.abc import Iterator

import pytest
import pytest_asyncio

from support.pywbem_peer import PywbemPeer, pywbem_peer


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
