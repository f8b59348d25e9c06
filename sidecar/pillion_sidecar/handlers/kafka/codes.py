"""The error codes of Kafka's protocol that a producer meets, and what they say of a delivery."""

from enum import IntEnum

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause


class Code(IntEnum):
    """The names are Kafka's."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    THROTTLING_QUOTA_EXCEEDED = 89
    INVALID_RECORD = 87


#: About a record of the batch, or its size: parts of the batch may be accepted.
ABOUT_RECORDS = frozenset((Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE, Code.INVALID_RECORD))
#: The leader has written the records, or may have.
_MAY_HAVE = frozenset(
    (
        Code.UNKNOWN_SERVER_ERROR,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )
)
_HOLDS: dict[int, HoldCause] = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: HoldCause.DESTINATION,
    Code.INVALID_TOPIC_EXCEPTION: HoldCause.DESTINATION,
    Code.TOPIC_AUTHORIZATION_FAILED: HoldCause.REFUSED,
    Code.CLUSTER_AUTHORIZATION_FAILED: HoldCause.REFUSED,
}
_MEANINGS: dict[int, str] = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: "the topic does not exist, or its creation is under way",
    Code.TOPIC_AUTHORIZATION_FAILED: "the user may not write to the topic",
    Code.CLUSTER_AUTHORIZATION_FAILED: "the user may not use the cluster",
    Code.NOT_ENOUGH_REPLICAS: "too few replicas are in sync (min.insync.replicas)",
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but too few replicas were in sync",
    Code.REQUEST_TIMED_OUT: "written, but the replicas did not confirm it in time",
}


def name_of(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return f"error {code}"


def outcome_of(code: int, topic: str) -> DeliveryOutcome:
    """The outcome of records that have an error, for a batch of one record if it is about
    records."""
    detail = f"topic {topic}: {name_of(code)}"
    if meaning := _MEANINGS.get(code):
        detail = f"{detail}: {meaning}"
    if code in _MAY_HAVE:
        return DeliveryOutcome(DeliveryResult.POST_DELIVERY_ERROR, detail)
    if code in (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
        detail = f"{detail}: it takes no record of this size (max.message.bytes)"
        return DeliveryOutcome(DeliveryResult.ERROR, detail, refuses_indication=True)
    hold = _HOLDS.get(code)
    if hold is not None:
        return DeliveryOutcome(DeliveryResult.FATAL_ERROR, detail, hold=hold)
    refuses = code == Code.INVALID_RECORD
    return DeliveryOutcome(DeliveryResult.ERROR, detail, refuses_indication=refuses)
