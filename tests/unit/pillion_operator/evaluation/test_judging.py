import tracemalloc

from pillion_operator.evaluation import judging
from pillion_operator.evaluation.judging import remembering


def test_each_query_is_checked_once_for_each_language() -> None:
    asked: list[tuple[str, str]] = []

    def check(query: str, language: str) -> None:
        asked.append((query, language))

    remembered = remembering(check)
    for query, language in (("a", "WQL"), ("a", "DMTF:CQL"), ("b", "WQL"), ("a", "WQL")):
        assert remembered(query, language) is None

    assert asked == [("a", "WQL"), ("a", "DMTF:CQL"), ("b", "WQL")]


def test_queries_that_nobody_has_any_more_take_no_memory() -> None:
    remembered = remembering(lambda query, language: None)
    tracemalloc.start()
    try:
        for number in range(2000):
            remembered(f"{number:8192}", "WQL")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # Their texts are 16 MB.
    assert taken < 2_000_000
    assert judging.MOST_QUERIES > 2000
