"""A Spark job that publishes within a span of its own: ``python -m support.traced_job URL``."""

import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from pyspark_pillion import publish
from support.spark import start_spark

ALERT = {"AlertType": 6, "PerceivedSeverity": 6, "ProbableCause": 52}


def main(url: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    spark = start_spark(master="local[2]")
    rows = spark.range(0, 4, 1, 2)
    with provider.get_tracer("job").start_as_current_span("nightly"):
        print(publish(rows, source="plant", identity=["id"], properties=ALERT, url=url))
    spark.stop()
    provider.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
