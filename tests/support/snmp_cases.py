"""The cases of the rules of SNMP and its credentials; see ``support.resource_cases``."""

from support.resource_rules import Case
from support.resources import JSON

_SECRET: JSON = {"secretRef": {"name": "a"}}
_SNMP: JSON = {
    "destination": "snmp://host",
    "protocol": "SNMP",
    "credentials": {"snmp": _SECRET},
}


def _case(field: str, says: str, refused: JSON, mended: JSON = _SNMP) -> Case:
    return Case(
        kind="ListenerDestination",
        field=f"spec.{field}",
        says=says,
        refused=refused,
        mended=mended,
    )


def _option(field: str, says: str, refused: str, mended: str) -> Case:
    trap = {"notification": "Trap"}
    given, instead = ({**_SNMP, "snmp": {**trap, field: one}} for one in (refused, mended))
    return _case(f"snmp.{field}", says, given, instead)


def _engine(**options: str) -> JSON:
    return {**_SNMP, "snmp": {"engineId": "0x8000000001", **options}}


SNMP_CASES = (
    _case(
        "credentials",
        "has no snmp, which SNMP needs",
        {"destination": "snmp://host", "protocol": "SNMP"},
    ),
    _case(
        "credentials.snmp.secretRef.name",
        "is not the name",
        {**_SNMP, "credentials": {"snmp": {"secretRef": {"name": "A"}}}},
    ),
    _case(
        "destination",
        "has a scheme that SNMP does not have",
        {**_SNMP, "destination": "https://host"},
    ),
    _case(
        "destination",
        "has more than a host and a port, which SNMP",
        {**_SNMP, "destination": "snmp://host/public"},
        {**_SNMP, "destination": "snmp://host:1162/"},
    ),
    _case(
        "snmp",
        "has options of protocol SNMP",
        {"destination": "https://host/", "protocol": "CloudEvents", "snmp": {}},
        {"destination": "https://host/", "protocol": "CloudEvents"},
    ),
    _option("engineId", "is not 5 to 32 bytes", "0x800000001", "0x8000000001"),
    _option("engineId", "is not 5 to 32 bytes", "8000000001", f"0x{32 * 'aF'}"),
    _option("oid", "is not an object identifier", "1.3.6.1.2.1", "1.3.6.1.4.1.9"),
    _option("oid", "is not an object identifier", "1.3.6.1.4.1.9.01", "1.3.6.1.4.1.9.0.1.2"),
    *(
        _case(
            f"snmp.{field}",
            "has an effect on v3 only",
            {**_SNMP, "snmp": {"version": "v2c", field: value}},
            {**_SNMP, "snmp": {field: value}},
        )
        for field, value in (("securityLevel", "AuthPriv"), ("authProtocol", "SHA512"))
    ),
    _case(
        "snmp.engineId",
        "has an effect on traps of v3",
        _engine(),
        _engine(notification="Trap"),
    ),
    _case(
        "snmp.engineId",
        "has an effect on traps of v3",
        _engine(notification="Trap", version="v2c"),
        _engine(notification="Trap", version="v3"),
    ),
)
