"""Syslog: one message over TCP or TLS (RFC 5424, RFC 6587, RFC 5425)."""

from enum import StrEnum

from pillion_sidecar.fields import Integer, declared, one_of, resource, text_matching
from pillion_sidecar.protocols.declaration import Protocol, Scheme, URLForm

#: RFC 5424 6.2.1, without kern, which no other program may use.
FACILITIES = {
    "user": 1,
    "mail": 2,
    "daemon": 3,
    "auth": 4,
    "syslog": 5,
    "lpr": 6,
    "news": 7,
    "uucp": 8,
    "cron": 9,
    "authpriv": 10,
    "ftp": 11,
    **{f"local{number}": 16 + number for number in range(8)},
}


class SyslogMessage(StrEnum):
    TEXT = "Text"
    JSON = "JSON"


@resource
class SyslogOptions:
    facility: str = declared(
        default="local0",
        type=one_of(FACILITIES),
        description="The facility of all messages. The severity comes from PerceivedSeverity.",
    )
    app_name: str = declared(
        default="pillion",
        type=text_matching(
            "[!-~]+",
            max_length=48,
            message="is not an APP-NAME",
            remedy="Write printable ASCII without spaces.",
        ),
        description="The APP-NAME of all messages.",
    )
    structured_data_id: str = declared(
        default="pillion@32473",
        type=text_matching(
            r"[A-Za-z0-9._-]+@[0-9]+(\.[0-9]+)*",
            max_length=32,
            message="is not NAME@NUMBER",
            remedy="Write a name, @ and your private enterprise number, such as alerts@12345.",
        ),
        description="The SD-ID of the structured data. The default has the number that RFC 5612 "
        "reserves for examples; replace it if you have a private enterprise number.",
    )
    message: SyslogMessage = declared(
        default=SyslogMessage.TEXT,
        description="The text of a message. Text: the property Message, Description, or else the "
        "class; the properties are in the structured data. JSON: the instance.",
    )
    max_bytes: int = declared(
        default=8192,
        type=Integer(minimum=1024, maximum=4_194_304),
        description="Maximum bytes of a message. Parameters that do not fit are left out, and the "
        "text is cut. At most the listener's own limit (maxMessageSize of rsyslog): beyond it, "
        "rsyslog takes the rest for further messages.",
    )


PROTOCOL = Protocol(
    name="Syslog",
    summary="one syslog message (RFC 5424) over TCP or TLS",
    manual="For rsyslog, syslog-ng and log collectors. Each delivery is one message with octet "
    "counting (RFC 6587), over TLS as in RFC 5425; "
    "[what is sent](../listeners.md#syslog-messages) and what counts as success.",
    schemes=(Scheme("syslog", 514, is_secure=False), Scheme("syslogs", 6514, is_secure=True)),
    handler="pillion_sidecar.handlers.syslog.handler:create_handler",
    url_forms=(
        URLForm(
            regex="[^/]*//[^/?]*/?",
            message="has a path or a query, which syslog does not have",
            remedy="Write nothing behind host and port.",
        ),
    ),
    # The client's certificate is in tls.
    credentials=(),
    level=3,
    options=SyslogOptions,
)
