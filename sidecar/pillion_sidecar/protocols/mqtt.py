"""MQTT 5: CloudEvents as messages of a topic."""

from typing import Any

from pillion_sidecar.fields import Integer, declared, resource, text_matching
from pillion_sidecar.protocols.declaration import OptionsFault, Protocol, Scheme, URLForm

#: Printable ASCII without the wildcards; no '$' at the start.
_TOPIC = r"""[ -"%-*,-~][ -"$-*,-~]*"""
#: Bytes of a user name, a password or a token (1.5.6).
LONGEST_CREDENTIAL = 0xFFFF


@resource
class MQTTOptions:
    topic: str = declared(
        type=text_matching(
            _TOPIC,
            max_length=1024,
            message="is not a topic that can be published to",
            remedy="Write printable ASCII without '+' and '#', and without '$' at the start.",
        ),
        description="The topic of all messages.",
    )
    qos: int = declared(
        default=1,
        type=Integer(minimum=0, maximum=2),
        description="The quality of service of messages. 0: success is the broker's answer to a "
        "ping after the message. 1: its PUBACK. 2: its PUBCOMP.",
    )
    retain: bool = declared(
        default=False,
        description="Whether the broker keeps the last message for new subscribers.",
    )
    expiry_seconds: int | None = declared(
        default=None,
        type=Integer(minimum=1, maximum=4_294_967_295),
        assumed="without limit",
        description="Seconds after which the broker deletes a message that it could not pass on.",
    )


def _check_credentials(_: MQTTOptions, credentials: Any) -> OptionsFault | None:
    texts = {
        "basic": (credentials.username, credentials.password),
        "bearer": (credentials.bearer_token,),
    }
    for field, given in texts.items():
        if any(len((one or "").encode()) > LONGEST_CREDENTIAL for one in given):
            message = f"has more than {LONGEST_CREDENTIAL:,} bytes, which MQTT cannot carry"
            return OptionsFault(field, message, "Use a shorter one.")
    return None


PROTOCOL = Protocol(
    name="MQTT",
    summary="one CloudEvent as a message (MQTT 5)",
    manual="For MQTT brokers such as mosquitto, EMQX and HiveMQ. Each delivery is one message with "
    "one event in structured mode; [what is sent](../listeners.md#mqtt-messages) and what counts "
    "as success.",
    schemes=(Scheme("mqtt", 1883, is_secure=False), Scheme("mqtts", 8883, is_secure=True)),
    handler="pillion_sidecar.handlers.mqtt.handler:create_handler",
    url_forms=(
        URLForm(
            regex="[^/]*//[^/?]*/?",
            message="has a path or a query, which MQTT does not have",
            remedy="Write nothing behind host and port, and the topic in mqtt.topic.",
        ),
    ),
    level=3,
    options=MQTTOptions,
    options_required=True,
    check_credentials=_check_credentials,
)
