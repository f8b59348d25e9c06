"""Options are read once, on the driver, and every problem is told at once."""

import re
from pathlib import Path

import pytest

from pyspark_pillion.deliverer import Access, Address
from pyspark_pillion.errors import ConfigurationError
from pyspark_pillion.options import DEFAULT_URL, TABLE, parse_options


def problems(**given: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse_options(given)
    return caught.value.problems


def test_source_alone_is_enough() -> None:
    options = parse_options({"source": "weather"})

    assert (options.source, options.ack, options.flush_level) == (
        "weather",
        "accepted",
        None,
    )
    assert (options.batch_size, options.on_undelivered, options.on_invalid) == (
        5000,
        "report",
        "fail",
    )
    assert options.redeliver


def test_source_is_required() -> None:
    assert problems(batchSize="1") == (
        "option source is missing: name the publisher, the same in every run of the job",
    )


def test_writing_to_a_table_is_refused_with_what_works_in_sql() -> None:
    # Spark passes on none of a table's options.
    (problem,) = problems()
    assert "option source is missing" in problem
    assert "CREATE TEMPORARY VIEW" in problem


def test_names_are_compared_without_regard_to_case_as_spark_lowers_them() -> None:
    options = parse_options({"source": "s", "batchsize": "7", "ONUNDELIVERED": "Report"})

    assert (options.batch_size, options.on_undelivered) == (7, "report")


def test_every_problem_is_told_at_once() -> None:
    found = problems(
        url="ftp://x", ack="soon", batchSize="0", timeoutSeconds="never", flushLevel="x"
    )

    assert [text.split()[1] for text in found] == [
        "url",
        "ack",
        "batchSize",
        "timeoutSeconds",
        "flushLevel",
        "source",
    ]


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    assert problems(source="s", batchsise="7") == (
        "option batchsise is unknown: did you mean batchSize?",
    )
    assert "did you mean className?" in problems(source="s", **{"class": "X"})[0]


def test_sparks_own_options_are_tolerated() -> None:
    parse_options({"source": "s", "queryName": "q", "checkpointLocation": "/c"})


def test_a_path_of_save_is_refused_since_nothing_is_there() -> None:
    (problem,) = problems(source="s", path="/alerts")
    assert problem.startswith("the path '/alerts' means nothing: call save() or start() without it")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8288", "ftp://host:1", "https://", "http://h:99999", "http://h/x", "http://u@h"],
)
def test_a_url_that_is_no_intake_address_is_refused(url: str) -> None:
    assert problems(source="s", url=url)[0].startswith(f"option url is {url!r}")


def test_a_task_finds_the_deliverer_by_option_then_environment_then_default() -> None:
    environ = {"PILLION_URL": "http://gateway:81"}

    assert parse_options({"source": "s"}).address({}) == Address("127.0.0.1", 8288)
    assert DEFAULT_URL == "http://127.0.0.1:8288"
    assert parse_options({"source": "s"}).address(environ) == Address("gateway", 81)
    given = parse_options({"source": "s", "url": "http://[::1]:82"})
    assert given.address(environ) == Address("::1", 82)


def test_a_gateway_is_an_https_url_with_what_gets_in_there() -> None:
    given = parse_options(
        {"source": "s", "url": "https://gateway", "caFile": "/ca.crt", "tokenFile": "/token"}
    )
    assert given.address({}) == Address("gateway", 443, encrypted=True)
    assert given.access == Access(ca_file="/ca.crt", token_file="/token")
    at = parse_options({"source": "s", "tokenFile": "/token"})
    assert at.address({"PILLION_URL": "https://gateway:8288"}).port == 8288
    with pytest.raises(ConfigurationError, match="option tokenFile is given: it is for a gateway"):
        at.address({})


def test_a_token_that_stands_where_its_file_should_is_not_repeated() -> None:
    for given in ({"tokenFile": "eyJhbGciOi.secret.x"}, {"token": "eyJhbGciOi.secret.x"}):
        (problem,) = problems(source="s", url="https://gateway", **given)
        assert "tokenFile" in problem
        assert "secret" not in problem


def test_a_bad_address_in_the_environment_is_named() -> None:
    with pytest.raises(ConfigurationError, match="PILLION_URL is 'nonsense'"):
        parse_options({"source": "s"}).address({"PILLION_URL": "nonsense"})


def test_ack_delivered_is_refused_with_the_way_to_wait_for_delivery() -> None:
    assert "flushLevel" in problems(source="s", ack="delivered")[0]


def test_a_task_whose_requests_are_durable_ends_when_all_is_durable_unless_told_otherwise() -> None:
    assert parse_options({"source": "s", "ack": "durable"}).flush_level == "durable"
    options = parse_options({"source": "s", "ack": "durable", "flushLevel": "delivered"})
    assert options.flush_level == "delivered"


def test_who_asks_for_delivery_or_for_failure_gets_both() -> None:
    asked = parse_options({"source": "s", "flushLevel": "delivered"})
    assert asked.on_undelivered == "fail"
    asked = parse_options({"source": "s", "onUndelivered": "fail"})
    assert asked.flush_level == "delivered"
    asked = parse_options({"source": "s", "ack": "durable", "onUndelivered": "fail"})
    assert asked.flush_level == "durable"
    asked = parse_options({"source": "s", "flushLevel": "delivered", "onUndelivered": "report"})
    assert asked.on_undelivered == "report"


def test_a_task_waits_for_stores_by_its_flush_level_alone() -> None:
    options = parse_options({"source": "s", "flushLevel": "Stable"})
    assert (options.ack, options.flush_level, options.on_undelivered) == (
        "accepted",
        "stable",
        "report",
    )
    (problem,) = problems(source="s", ack="stable")
    assert problem == (
        "option ack is 'stable': choose accepted or durable; that a task waits for stores is said"
        " by flushLevel"
    )


@pytest.mark.parametrize("name", ["cim alert", "9Lives", "", "CIM-Alert"])
def test_a_class_name_that_no_class_can_have_is_refused(name: str) -> None:
    assert problems(source="s", className=name)[0].startswith(f"option className is {name!r}")


def test_redelivery_can_be_left_out() -> None:
    assert not parse_options({"source": "s", "redeliver": "False"}).redeliver
    assert "choose one of true, false" in problems(source="s", redeliver="no")[0]


def test_rejects_need_a_path_and_a_path_needs_rejects() -> None:
    assert "rejectsPath" in problems(source="s", onInvalid="rejects")[0]
    assert "onInvalid" in problems(source="s", rejectsPath="/tmp/r")[0]
    options = parse_options({"source": "s", "onInvalid": "rejects", "rejectsPath": "file:///r"})
    assert options.rejects_path == "/r"


@pytest.mark.parametrize("uri", ["s3://bucket/rejects", "hdfs://name:8020/rejects"])
def test_rejects_go_to_file_systems_of_pyarrow(uri: str) -> None:
    options = parse_options({"source": "s", "onInvalid": "rejects", "rejectsPath": uri})
    assert options.rejects_path == uri


@pytest.mark.parametrize("path", ["rejects", "s3a://bucket/rejects", "s3://"])
def test_a_rejects_path_is_a_directory_of_the_executor(path: str) -> None:
    found = problems(source="s", onInvalid="rejects", rejectsPath=path)
    assert found[0].startswith(f"option rejectsPath is {path!r}: write an absolute path")


def test_columns_map_columns_to_properties() -> None:
    options = parse_options({"source": "s", "columns": "ObservedValue=gust, EventTime = ts"})

    assert options.columns == {"gust": "ObservedValue", "ts": "EventTime"}


@pytest.mark.parametrize("columns", ["gust", "=gust", "A=x,A=y", "A=x,B=x"])
def test_columns_that_cannot_be_read_are_refused(columns: str) -> None:
    assert problems(source="s", columns=columns)[0].startswith("option columns has ")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "86401"])
def test_times_are_bounded(seconds: str) -> None:
    assert "option retrySeconds is" in problems(source="s", retrySeconds=seconds)[0]


def test_the_manual_has_each_option_with_its_default_and_meaning() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", manual, re.MULTILINE)

    assert rows == [(option.name, option.default, option.meaning) for option in TABLE.values()]
