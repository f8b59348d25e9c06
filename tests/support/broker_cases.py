"""The cases of the rules of message brokers; see ``support.resource_cases``."""

from collections.abc import Iterator

from support.resource_rules import Case
from support.resources import JSON

_NATS: JSON = {"protocol": "NATS", "destination": "tls://host", "nats": {"subject": "alerts"}}

_MQTT: JSON = {"protocol": "MQTT", "destination": "mqtts://host", "mqtt": {"topic": "alerts"}}


def _case(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    return Case(
        kind="ListenerDestination",
        field=f"spec.{field}",
        says=says,
        refused=refused,
        mended=mended,
    )


def _usual(of: JSON, options: str, plain: str) -> Iterator[Case]:
    """What is the same for all brokers. ``plain``: a scheme without TLS."""
    name = of["protocol"]
    yield _case(
        "destination",
        f"has a scheme that {name} does not",
        {**of, "destination": "https://host"},
        of,
    )
    yield _case(
        "destination",
        f"has a path or a query, which {name}",
        {**of, "destination": f"{plain}://host/a"},
        {**of, "destination": f"{plain}://host/"},
    )
    yield _case(options, "is missing, and", {key: of[key] for key in of if key != options}, of)
    yield _case(
        options,
        f"has options of protocol {name}",
        {"protocol": "CloudEvents", "destination": "https://host", options: of[options]},
        {"protocol": "CloudEvents", "destination": "https://host"},
    )
    secret = {"secretRef": {"name": "a"}}
    yield _case(
        "credentials",
        "would be sent unencrypted",
        {**of, "destination": f"{plain}://host", "credentials": {"bearer": secret}},
        {**of, "destination": f"{plain}://localhost", "credentials": {"bearer": secret}},
    )


def _subject(refused: str, mended: str) -> Case:
    given, instead = ({**_NATS, "nats": {"subject": one}} for one in (refused, mended))
    return _case("nats.subject", "is not a subject", given, instead)


def _topic(refused: str, mended: str) -> Case:
    given, instead = ({**_MQTT, "mqtt": {"topic": one}} for one in (refused, mended))
    return _case("mqtt.topic", "is not a topic", given, instead)


BROKER_CASES = (
    *_usual(_NATS, "nats", "nats"),
    *_usual(_MQTT, "mqtt", "mqtt"),
    _case(
        "nats",
        "has tlsFirst, and",
        {**_NATS, "destination": "NATS://host", "nats": {"subject": "a", "tlsFirst": True}},
        {**_NATS, "nats": {"subject": "a", "tlsFirst": True}},
    ),
    _topic("alerts/+", "/alerts/a b!~"),
    _topic("#", "a$"),
    _topic("$SYS/broker", "SYS/$"),
    _topic("a\nb", "a-b"),
    _subject("alerts.*", "alerts.a-b_c/d:e"),
    _subject("alerts.>", "a"),
    _subject("alerts..cim", "alerts.$cim"),
    _subject("$JS.API", "JS.API"),
    _subject("a b", "a.b"),
    _subject("a\r\nPUB", "a~!"),
)
