"""Prints the identifiers of the alerts that a batch of a year of weather raises, one a line.

python -m support.weather_identifiers SOURCE
"""

import json
import sys
from datetime import UTC, datetime, timedelta

from pillion_rules import Rule
from pyspark_pillion.rules import indications, transitions
from support.spark import start_spark
from support.weather import RULES, weather_job


def main() -> None:
    spark = start_spark(master="local[2]")
    job = weather_job()
    weather = job.read_weather(spark, str(job.find_data()))
    (last,) = weather.selectExpr("unix_seconds(max(time_hour))").collect()[0]
    rules = Rule.load(RULES)
    # A stream has not passed its last minute.
    until = datetime.fromtimestamp(last, UTC) - timedelta(minutes=1)
    found = transitions(weather, rules, until=until)
    for row in indications(found, rules, source=sys.argv[1]).collect():
        print(json.loads(row.value)["properties"]["IndicationIdentifier"])


if __name__ == "__main__":
    main()
