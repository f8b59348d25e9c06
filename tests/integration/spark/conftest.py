"""A real Spark, in local mode, against a fake deliverer."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from support.fake_deliverer import FakeDeliverer
from support.spark import start_spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_spark(master="local[2,4]", **{"spark.sql.session.timeZone": "America/New_York"})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def shared_deliverer() -> Iterator[FakeDeliverer]:
    with FakeDeliverer() as fake:
        yield fake


@pytest.fixture
def deliverer(shared_deliverer: FakeDeliverer) -> FakeDeliverer:
    shared_deliverer.reset()
    return shared_deliverer
