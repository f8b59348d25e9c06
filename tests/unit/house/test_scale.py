"""The page of large installations has the sums of ``tools/scale.py``, and these take the figures of
the source."""

import pytest

from house import ROOT
from pillion_operator.names import CONFIGURATION_PARTS
from pillion_operator.polling.schedule import RATE
from pillion_operator.refresh import PER_SECOND
from scale import ANNOTATED, POLLS, SECRETS, Installation, main, table


def test_the_page_has_the_table_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out in (ROOT / "docs/large.md").read_text(encoding="utf-8")


def test_the_sums_take_the_bounds_of_the_operator() -> None:
    assert (SECRETS, POLLS, ANNOTATED) == (CONFIGURATION_PARTS, RATE / 2, PER_SECOND)


def test_a_node_whose_pods_are_of_one_service_watches_its_secrets_only() -> None:
    many = Installation(sidecars=1_000, pods=100, density=50)
    one = Installation(sidecars=1_000, pods=1_000, density=50)
    assert (many.watches, one.watches) == (20 * 10 * SECRETS, 20 * SECRETS)


def test_a_number_of_ones_own_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sidecars", "3000", "--rate", "2"]) == 0
    assert "| indications delivered a second | 6,000 |" in capsys.readouterr().out
    assert table([Installation(sidecars=3_000, rate=2.0)]).startswith("| | 3,000 sidecars |")
