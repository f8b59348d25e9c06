"""The cases of Kafka's rules; see ``support.resource_cases``."""

from support.resource_rules import Case
from support.resources import JSON

_KAFKA: JSON = {"protocol": "Kafka", "destination": "kafkas://host", "kafka": {"topic": "alerts"}}
_SECRET = {"secretRef": {"name": "a"}}
#: Loopback may get credentials without TLS.
_LOCAL: JSON = {"destination": "kafka://localhost", "credentials": {"basic": _SECRET}}


def _case(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    return Case(
        kind="ListenerDestination",
        field=f"spec.{field}",
        says=says,
        refused={**_KAFKA, **refused},
        mended={**_KAFKA, **mended},
    )


def _option(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    given, instead = ({"kafka": {"topic": "alerts", **one}} for one in (refused, mended))
    return _case(f"kafka.{field}", says, given, instead)


def _key(says: str, ordering: str, refused: str, mended: str) -> Case:
    given, instead = (
        {"ordering": ordering, "kafka": {"topic": "alerts", "key": key}}
        for key in (refused, mended)
    )
    return _case("kafka", says, given, instead)


KAFKA_CASES = (
    _case(
        "destination",
        "has a scheme that Kafka does not have",
        {"destination": "https://host"},
        {},
    ),
    _case(
        "destination",
        "has a path or a query, which Kafka",
        {"destination": "kafkas://host/alerts"},
        {"destination": "kafkas://host:9093/"},
    ),
    _case(
        "destination",
        "has a path or a query, which Kafka",
        {"destination": "kafkas://host:9092/alerts"},
        {"destination": "kafkas://host:9092"},
    ),
    Case(
        kind="ListenerDestination",
        field="spec.kafka",
        says="is missing, and",
        refused={key: _KAFKA[key] for key in _KAFKA if key != "kafka"},
        mended=_KAFKA,
    ),
    _case(
        "kafka",
        "has options of protocol Kafka",
        {"protocol": "CloudEvents", "destination": "https://host"},
        {},
    ),
    *(
        _option("topic", "is no name of a topic", {"topic": wrong}, {"topic": right})
        for wrong, right in (("a/b", "a.b-c_D"), ("..", "..a"), ("a\r\nb", ".a"))
    ),
    *(
        _option(
            "brokers[0]", "is not HOST or HOST:PORT", {"brokers": [wrong]}, {"brokers": [right]}
        )
        for wrong, right in (
            ("kafka://host", "host"),
            ("host:0", "host:9093"),
            ("::1", "[::1]:9092"),
            ("a b", "a_b.example"),
        )
    ),
    _option("brokers[0]", "is not HOST or", {"brokers": ["a:65536"]}, {"brokers": ["a:65535"]}),
    _option("brokers[0]", "is not HOST or", {"brokers": ["[1]"]}, {"brokers": ["[fd00::1]"]}),
    *(
        _case(
            "kafka",
            "has saslMechanism, which",
            {"kafka": {"topic": "a", "saslMechanism": mechanism}},
            {
                "kafka": {"topic": "a", "saslMechanism": mechanism},
                "credentials": {"basic": _SECRET},
            },
        )
        for mechanism in ("PLAIN", "SCRAM-SHA-512")
    ),
    *(
        _case(
            "kafka",
            "has brokers that would get",
            {**_LOCAL, "kafka": {"topic": "a", "brokers": ["127.0.0.1", broker]}},
            {**_LOCAL, "kafka": {"topic": "a", "brokers": ["[::1]:9093", "LOCALHOST"]}},
        )
        for broker in ("host", "localhost.example:9092", "127.0.0.1.example")
    ),
    _key("has a key that spreads records", "Destination", "Group", "Destination"),
    _key("has a key that spreads records", "Destination", "None", "Destination"),
    _key("has a key that separates records", "Group", "Class", "Group"),
    _key("has a key that separates records", "Group", "None", "Destination"),
)
