"""What copies of journals take of a gateway's volume, and what a start says of them."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.clock import SystemClock
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.schema.copies import JournalCopies
from pillion_sidecar.config.schema.history import HistoryPolicy
from pillion_sidecar.config.schema.service import AllowedPublisher, IndicationService
from pillion_sidecar.copies_runtime import FOLDER_NAME, CopiesFolder, reserved_bytes
from pillion_sidecar.journal.files import FolderError
from pillion_sidecar.journal.limits import MIB
from pillion_sidecar.journal_runtime import DEFAULT_BYTES, history_bytes, journal_bytes
from pillion_sidecar.stores.messages import ClaimRequest
from support.stores import SESSION

COPIES = JournalCopies(maximum_bytes="100Mi")


def service(*namespaces: str, **given: Any) -> IndicationService:
    return IndicationService(
        name="alerts",
        journal_copies=COPIES,
        publishers=tuple(AllowedPublisher(namespace=one) for one in namespaces),
        **given,
    )


def test_each_namespace_that_may_publish_has_its_share() -> None:
    assert reserved_bytes(IndicationService()) == 0
    assert reserved_bytes(service()) == 100 * MIB
    assert reserved_bytes(service("a", "b", "a")) == 200 * MIB


def test_journal_and_history_get_the_rest_of_the_volume() -> None:
    assert journal_bytes(service()) == DEFAULT_BYTES
    given = service("a", "b", storage_bytes=1000 * MIB)
    assert journal_bytes(given) == 640 * MIB
    assert history_bytes(given) == 80 * MIB
    written = service(
        "a", "b", storage_bytes=400 * MIB, history=HistoryPolicy(maximum_bytes="57Mi")
    )
    # A twentieth stays free.
    assert journal_bytes(written) == pytest.approx((400 - 200 - 57 - 20) * MIB, abs=1)


def test_shares_of_more_than_half_the_volume_are_refused_at_the_field() -> None:
    with pytest.raises(ConfigurationError) as refused:
        journal_bytes(service("a", "b", "c", storage_bytes=599 * MIB))
    assert str(refused.value) == (
        "IndicationService/alerts: spec.journalCopies.maximumBytes: is for each of 3 namespaces in"
        " publishers; together they are more than half of deliverer.storage.sizeLimit (value"
        " 100Mi). Write at most 99Mi, or a larger volume."
    )


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(record.__dict__.get("event")) for record in caplog.records]


async def test_a_change_takes_effect_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copies = CopiesFolder(clock=SystemClock())
    # Nothing is in force yet.
    copies.warn_of_change(service())
    await copies.open(tmp_path, service())
    try:
        assert copies.stores is not None
        await copies.stores.perform(None, SESSION, ClaimRequest(number=1, claimant="x"))
        copies.warn_of_change(service())
        assert events(caplog) == []
        copies.warn_of_change(IndicationService())
        assert events(caplog) == ["configuration-warning"]
        assert copies.stores.limits.maximum_bytes == 100 * MIB
    finally:
        copies.close()
    copies.close()
    assert (tmp_path / FOLDER_NAME / "_" / SESSION).is_dir()


async def test_copies_that_nobody_serves_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for made in (False, True):
        if made:
            await asyncio.to_thread((tmp_path / FOLDER_NAME / "team").mkdir, parents=True)
        copies = CopiesFolder(clock=SystemClock())
        await copies.open(tmp_path, IndicationService())
        assert copies.stores is None
        copies.close()
    assert events(caplog) == ["journal-copies-unused"]


async def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / FOLDER_NAME).write_text("")
    copies = CopiesFolder(clock=SystemClock())
    try:
        with pytest.raises(FolderError, match=FOLDER_NAME):
            await copies.open(tmp_path, service())
    finally:
        copies.close()
