"""A part of the deliverer that fails where no caller sees it: it stops, and says so."""

import asyncio
from pathlib import Path

import pytest

from support.listening import listening
from support.running import alert, listener, resources, running


async def test_a_settlement_that_fails_stops_the_deliverer_instead_of_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the books are wrong")

    async def publish_to_what_fails(folder: Path) -> None:
        async with listening() as ops, running(folder, *resources(listener("ops", ops.url))) as run:
            monkeypatch.setattr(run.deliverer._memory, "settled", fail)
            await run.publish(alert("0"))
            await asyncio.wait([run.ended])
            monkeypatch.undo()

    with pytest.raises(ExceptionGroup) as raised:
        await publish_to_what_fails(tmp_path)
    assert raised.group_contains(RuntimeError, match="the books are wrong")
    events = [getattr(record, "event", None) for record in caplog.records]
    assert "deliverer-failed" in events
