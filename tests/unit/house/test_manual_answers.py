"""The tables of answers, causes and actions in the manual are those of the source."""

import re

from pillion_sidecar.config.schema.destination import HoldCause
from pillion_sidecar.config.schema.response_policy import (
    CREDENTIALS,
    DEFAULTS,
    INDICATION,
    REFUSALS,
    Action,
    NoAnswer,
)
from pillion_sidecar.delivery.health import QUIET_SECONDS
from pillion_sidecar.delivery.response_policy import PROBES_IN_A_LIFETIME
from pillion_sidecar.telemetry import definitions
from support.manual import DOCS, codes, numbers, table, text_of

PAUSES = {one.value for one in HoldCause if one.is_pause}
HOLDS = {one.value for one in HoldCause} - PAUSES


def causes(page: str, heading: str) -> set[str]:
    """The first column of the first table behind a heading."""
    section = (DOCS / page).read_text(encoding="utf-8").split(f"# {heading}\n")[1]
    rows = re.search(r"\| cause \|[^\n]*\n\|[^\n]*\n((?:\|[^\n]*\n)+)", section)
    assert rows is not None
    return {code for row in rows[1].splitlines() for code in codes(row.split("|")[1])}


def test_the_table_of_answers_is_that_of_the_source() -> None:
    rows = table("delivery.md", "answers")
    assert [(tuple(codes(answers)), *codes(action)) for answers, action, _ in rows[:-1]] == [
        (line.answers, line.action) for line in DEFAULTS
    ]
    assert codes(rows[-1][1]) == [Action.RETRY]
    (discards,) = [row[2] for row in rows if codes(row[1]) == [Action.DISCARD]]
    assert numbers(discards) == [REFUSALS]
    assert ["Retry-After" in row[2] for row in rows[:-1]] == [
        line.heeds_retry_after for line in DEFAULTS
    ]


def test_the_words_and_the_actions_are_those_of_the_source() -> None:
    assert [codes(row[0])[0] for row in table("delivery.md", "word")] == [
        *NoAnswer,
        CREDENTIALS,
        INDICATION,
    ]
    assert [codes(row[0])[0] for row in table("delivery.md", "action")] == [*Action]


def test_every_cause_is_explained_where_it_belongs() -> None:
    assert causes("delivery.md", "A destination that is held") == HOLDS
    assert causes("delivery.md", "A destination that is paused") == PAUSES
    assert causes("runbook.md", "PillionDestinationHeld") == HOLDS
    assert causes("runbook.md", "PillionDestinationPaused") == PAUSES
    for metric, known in ((definitions.HELD, HOLDS), (definitions.PAUSED, PAUSES)):
        assert known <= set(re.findall(r"[a-z-]+", metric.help))
        other = (HOLDS | PAUSES) - known
        assert other.isdisjoint(re.findall(r"[a-z-]+", metric.help))


def test_the_figures_of_a_pause_are_those_of_the_source() -> None:
    text = " ".join(text_of("delivery.md").split())
    assert f"once in {QUIET_SECONDS / 60:.0f} minutes" in text
    assert PROBES_IN_A_LIFETIME == 4
    assert "or four times in a lifetime if that is more often" in text
