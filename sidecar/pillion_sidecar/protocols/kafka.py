"""Kafka: one record for each delivery, in batches (CloudEvents' Kafka binding 1.0)."""

from collections.abc import Iterator
from enum import StrEnum

from pillion_sidecar.fields import (
    JSONObject,
    ListOf,
    Rule,
    cel_matches,
    declared,
    resource,
    text_matching,
    whole,
)
from pillion_sidecar.protocols.declaration import (
    HOST,
    LOOPBACK_HOST,
    PORT,
    Protocol,
    Scheme,
    URLForm,
)


class KafkaKey(StrEnum):
    """What records with the same key, and so of one partition, have in common."""

    DESTINATION = "Destination"
    GROUP = "Group"
    CLASS = "Class"
    NONE = "None"


class KafkaAcks(StrEnum):
    ALL = "All"
    LEADER = "Leader"


class KafkaCompression(StrEnum):
    NONE = "None"
    GZIP = "Gzip"


class SASLMechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


#: Kafka's names of topics, but not "." and "..".
_TOPIC = "[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*"
_BROKER = f"{HOST}(:{PORT})?"
_LOCAL_BROKER = f"{LOOPBACK_HOST}(:.*)?"
_PLAIN = "(?i:kafka)://.*"
MOST_BROKERS = 16


@resource
class KafkaOptions:
    topic: str = declared(
        type=text_matching(
            _TOPIC,
            max_length=249,
            message="is no name of a topic",
            remedy="Write letters, digits, '.', '_' and '-'.",
        ),
        description="The topic of all records. It is never created.",
    )
    brokers: tuple[str, ...] = declared(
        default=(),
        type=ListOf(
            item=text_matching(
                _BROKER,
                max_length=260,
                message="is not HOST or HOST:PORT",
                remedy="Write it without a scheme, such as kafka-2.example.com:9092.",
            ),
            max_items=MOST_BROKERS,
        ),
        assumed="none",
        convert=tuple,
        description="Further brokers, HOST:PORT, that are asked for the topic's leaders if the one "
        "in the URL does not answer.",
    )
    key: KafkaKey = declared(
        default=KafkaKey.DESTINATION,
        description="The key of records. Kafka keeps the order of records with the same key. "
        "Destination: the name of the destination, so all records are in one partition. Group: the "
        "message group; without one, the class. Class: the class. None: no key; batches go to all "
        "partitions in turn.",
    )
    acks: KafkaAcks = declared(
        default=KafkaAcks.ALL,
        description="When a record counts as delivered. All: all replicas in sync have it. "
        "Leader: the leader has it, and may lose it if it fails.",
    )
    compression: KafkaCompression = declared(
        default=KafkaCompression.NONE,
        description="The compression of batches.",
    )
    sasl_mechanism: SASLMechanism = declared(
        default=SASLMechanism.SCRAM_SHA_512,
        assumed="`SCRAM-SHA-512`",
        description="How credentials.basic authenticates. PLAIN sends the password itself.",
    )


def _keys(*keys: KafkaKey) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def _key(spec: JSONObject) -> str:
    key: str = spec.get("kafka", {}).get("key", KafkaKey.DESTINATION)
    return key


#: Ordered deliveries need keys that keep their order.
_ORDER_RULES = (
    Rule(
        cel='!has(self.kafka) || self.ordering != "Destination" || self.kafka.key == "Destination"',
        holds=lambda spec: spec["ordering"] != "Destination" or _key(spec) == "Destination",
        field="kafka",
        message="has a key that spreads records, which would break ordering Destination",
        remedy="Set ordering to Group or None, or kafka.key to Destination.",
    ),
    Rule(
        cel='!has(self.kafka) || self.ordering != "Group" || '
        f"self.kafka.key in [{_keys(KafkaKey.DESTINATION, KafkaKey.GROUP)}]",
        holds=lambda spec: spec["ordering"] != "Group" or _key(spec) in ("Destination", "Group"),
        field="kafka",
        message="has a key that separates records of a group, which would break ordering Group",
        remedy="Set ordering to None, or kafka.key to Group or Destination.",
    ),
)

_is_local = whole(_LOCAL_BROKER)
_is_plain = whole(_PLAIN)


def _brokers_stay_secret(spec: JSONObject) -> bool:
    brokers = spec.get("kafka", {}).get("brokers", ())
    is_plain = _is_plain(spec.get("destination", ""))
    return "credentials" not in spec or not is_plain or all(map(_is_local, brokers))


_SASL_RULES = (
    Rule(
        cel="!has(self.kafka) || !has(self.kafka.saslMechanism) || has(self.credentials)",
        holds=lambda spec: "saslMechanism" not in spec.get("kafka", {}) or "credentials" in spec,
        field="kafka",
        message="has saslMechanism, which has no effect without credentials",
        remedy="Remove it, or write credentials.basic.",
    ),
    # The URL itself is checked as that of any protocol.
    Rule(
        cel="!has(self.kafka) || !has(self.kafka.brokers) || !has(self.credentials) || "
        f"!has(self.destination) || !{cel_matches('self.destination', _PLAIN)} || "
        f"self.kafka.brokers.all(one, {cel_matches('one', _LOCAL_BROKER)})",
        holds=_brokers_stay_secret,
        field="kafka",
        message="has brokers that would get the credentials unencrypted",
        remedy="Begin destination with kafkas://, or remove credentials.",
    ),
)


def _urls(options: KafkaOptions) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for number, broker in enumerate(options.brokers):
        yield ("brokers", number), f"kafka://{broker}"


PROTOCOL = Protocol(
    name="Kafka",
    summary="one record with a structured event (CloudEvents' Kafka binding 1.0)",
    manual="For Apache Kafka and brokers that speak its protocol. Each delivery is one record of a "
    "topic, whose value is a CloudEvent in structured mode; waiting deliveries share a batch. "
    "[What is sent](../listeners.md#kafka-records) and what counts as success.",
    schemes=(Scheme("kafka", 9092, is_secure=False), Scheme("kafkas", 9092, is_secure=True)),
    handler="pillion_sidecar.handlers.kafka.handler:create_handler",
    url_forms=(
        URLForm(
            regex="[^/]*//[^/?]*/?",
            message="has a path or a query, which Kafka does not have",
            remedy="Write kafkas://host:port only, and the topic in kafka.topic.",
        ),
    ),
    credentials=("basic",),
    extra="kafka",
    library="aiokafka",
    level=3,
    options=KafkaOptions,
    options_required=True,
    most_at_once=500,
    rules=(*_ORDER_RULES, *_SASL_RULES),
    urls=_urls,
)
