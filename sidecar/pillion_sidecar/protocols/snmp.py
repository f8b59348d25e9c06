"""SNMP: one trap or inform over UDP (RFC 3416), in v2c or v3 (RFC 3414)."""

from enum import StrEnum

from pillion_sidecar.fields import Integer, Rule, cel_text, declared, resource, text_matching
from pillion_sidecar.protocols.declaration import Protocol, Scheme, URLForm


class SNMPVersion(StrEnum):
    V2C = "v2c"
    V3 = "v3"


class Notification(StrEnum):
    TRAP = "Trap"
    INFORM = "Inform"


class SecurityLevel(StrEnum):
    AUTHENTICATED = "AuthNoPriv"
    ENCRYPTED = "AuthPriv"


class AuthProtocol(StrEnum):
    """RFC 3414 (SHA) and RFC 7860."""

    SHA = "SHA"
    SHA_256 = "SHA256"
    SHA_384 = "SHA384"
    SHA_512 = "SHA512"


@resource
class SNMPOptions:
    version: SNMPVersion = declared(
        default=SNMPVersion.V3,
        description="The version of SNMP. v2c sends its community, and the indication, readable.",
    )
    notification: Notification = declared(
        default=Notification.INFORM,
        description="Inform: the receiver confirms it. Trap: nobody confirms it, and it may be "
        "lost without notice.",
    )
    security_level: SecurityLevel = declared(
        default=SecurityLevel.ENCRYPTED,
        assumed="`AuthPriv`",
        description="Of v3. AuthPriv: authenticated, and encrypted with AES (RFC 3826). "
        "AuthNoPriv: authenticated only, and readable.",
    )
    auth_protocol: AuthProtocol = declared(
        default=AuthProtocol.SHA_256,
        assumed="`SHA256`",
        description="The hash of v3: for authentication, and to make keys of passphrases.",
    )
    engine_id: str | None = declared(
        default=None,
        type=text_matching(
            "0x([0-9A-Fa-f]{2}){5,32}",
            max_length=66,
            message="is not 5 to 32 bytes in hexadecimal",
            remedy="Write 0x and 10 to 64 hexadecimal digits, an even number of them.",
        ),
        assumed="0x80007ed904 and the first 27 bytes of the service's name",
        description="The engine ID of the deliverers, which sign traps of v3 with it. The "
        "receiver must know it.",
    )
    oid: str = declared(
        default="1.3.6.1.4.1.32473.1",
        type=text_matching(
            r"1\.3\.6\.1\.4\.1\.[1-9][0-9]{0,8}(\.(0|[1-9][0-9]{0,8})){0,3}",
            max_length=60,
            message="is not an object identifier below enterprises",
            remedy="Write 1.3.6.1.4.1, your private enterprise number, and at most three more "
            "numbers, each of at most nine digits.",
        ),
        description="The object identifier of pillionMIB, below which all others are. The "
        "default has the number that RFC 5612 reserves for examples; replace it, here and in the "
        "MIB, if you have a private enterprise number.",
    )
    max_bytes: int = declared(
        default=1400,
        type=Integer(minimum=1024, maximum=65507),
        description="Maximum bytes of a message. What does not fit is left out or cut, and "
        "pillionTruncated is true. The network splits a message that is longer than its packets; "
        "if one part is lost, all of it is.",
    )


def _of_v3(name: str) -> Rule:
    return Rule(
        cel=f"!has(self.{name}) || self.version == {cel_text(SNMPVersion.V3)}",
        holds=lambda options: name not in options or options["version"] == SNMPVersion.V3,
        field=name,
        message="has an effect on v3 only; v2c sends everything readable",
        remedy="Remove it, or set version to v3.",
    )


PROTOCOL = Protocol(
    name="SNMP",
    summary="one SNMP trap or inform (v2c, v3) over UDP",
    manual="For network management systems. Each delivery is one notification of "
    "PILLION-MIB; [what is sent](../listeners.md#snmp-notifications), how a receiver is "
    "configured, and what counts as success.",
    schemes=(Scheme("snmp", 162, is_secure=False, is_datagram=True),),
    handler="pillion_sidecar.handlers.snmp.handler:create_handler",
    url_forms=(
        URLForm(
            regex="[^/]*//[^/?]*/?",
            message="has more than a host and a port, which SNMP does not have",
            remedy="Write snmp://host:port only.",
        ),
    ),
    credentials=("snmp",),
    required_credentials=("snmp",),
    level=3,
    options=SNMPOptions,
    option_rules=(
        _of_v3("securityLevel"),
        _of_v3("authProtocol"),
        Rule(
            cel=f"!has(self.engineId) || (self.version == {cel_text(SNMPVersion.V3)} && "
            f"self.notification == {cel_text(Notification.TRAP)})",
            holds=lambda options: (
                "engineId" not in options
                or (
                    options["version"] == SNMPVersion.V3
                    and options["notification"] == Notification.TRAP
                )
            ),
            field="engineId",
            message="has an effect on traps of v3 only: an inform has the receiver's",
            remedy="Remove it, or set version to v3 and notification to Trap.",
        ),
    ),
)
