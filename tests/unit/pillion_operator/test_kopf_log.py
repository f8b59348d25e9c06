"""kopf's records have the operator's names."""

import logging

import pytest

from pillion_operator.watching import renamed_records

WATCHING = logging.getLogger("kopf._cogs.clients.watching")


def test_a_request_that_is_made_again_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with renamed_records():
        WATCHING.error("Request attempt #1 failed; will retry: GET https://api -> %r", OSError())
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("pillion.operator", "WARNING")
    assert record.__dict__["event"] == "watch-retried"
    assert record.getMessage().startswith("kopf: Request attempt #1 failed; will retry")


def test_all_else_keeps_its_level_and_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    with renamed_records():
        try:
            raise OSError("gone")
        except OSError:
            WATCHING.exception("Watcher has failed")
    (record,) = caplog.records
    assert (record.levelname, record.__dict__["event"]) == ("ERROR", "kopf-told")
    assert record.exc_info is not None


def test_a_record_that_cannot_be_put_together_ends_nothing(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with renamed_records():
        WATCHING.error("%d", "no number")
        WATCHING.error("the next one")
    assert [record.getMessage() for record in caplog.records] == ["kopf: the next one"]
    assert "no number" in capsys.readouterr().err


def test_afterwards_kopf_logs_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    with renamed_records():
        pass
    WATCHING.error("Watcher has failed")
    (record,) = caplog.records
    assert record.name == WATCHING.name
