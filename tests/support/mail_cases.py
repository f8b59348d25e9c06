"""The cases of the rules of e-mail; see ``support.resource_cases``."""

from support.resource_rules import Case
from support.resources import JSON

_OPTIONS: JSON = {"from": "pillion@station.example", "to": ["on-call@ops.example"]}
_MAIL: JSON = {
    "destination": "smtp://mail.example:587",
    "protocol": "SMTP",
    "smtp": _OPTIONS,
}
_BASIC: JSON = {"basic": {"secretRef": {"name": "a"}}}
_EVENTS: JSON = {"destination": "https://host/", "protocol": "CloudEvents"}


def _case(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    return Case(
        kind="ListenerDestination",
        field=f"spec.{field}",
        says=says,
        refused=refused,
        mended=mended,
    )


def _option(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    given, instead = ({**_MAIL, "smtp": {**_OPTIONS, **one}} for one in (refused, mended))
    return _case(f"smtp.{field}", says, given, instead)


def _url(says: str, refused: str, mended: str) -> Case:
    given, instead = ({**_MAIL, "destination": one} for one in (refused, mended))
    return _case("destination", says, given, instead)


MAIL_CASES = (
    _url("has a scheme that SMTP", "https://mail.example/", "smtps://mail.example"),
    _url(
        "has more than a host and a port, which SMTP",
        "smtp://mail.example/a",
        "smtp://mail.example/",
    ),
    _case("smtp", "has options of protocol SMTP", {**_EVENTS, "smtp": _OPTIONS}, _EVENTS),
    _case(
        "smtp",
        "is missing, and protocol SMTP",
        {"destination": "smtp://mail.example", "protocol": "SMTP"},
        _MAIL,
    ),
    *(
        _case(
            "credentials",
            "might be sent unencrypted",
            {**_MAIL, "smtp": {**_OPTIONS, "startTLS": start}, "credentials": _BASIC},
            {**_MAIL, "smtp": {**_OPTIONS, "startTLS": "Required"}, "credentials": _BASIC},
        )
        for start in ("Opportunistic", "None")
    ),
    _case(
        "tls",
        "is written, and smtp.startTLS",
        {**_MAIL, "smtp": {**_OPTIONS, "startTLS": "None"}, "tls": {"serverName": "a.example"}},
        {**_MAIL, "smtp": {**_OPTIONS, "startTLS": "Opportunistic"}, "tls": {"serverName": "a"}},
    ),
    *(
        _case(
            "smtp",
            "has startTLS, and an smtps",
            {**_MAIL, "destination": "SMTPS://host", "smtp": {**_OPTIONS, "startTLS": start}},
            {**_MAIL, "smtp": {**_OPTIONS, "startTLS": start}},
        )
        for start in ("Opportunistic", "None")
    ),
    *(
        _option(
            "subject",
            "has the placeholder apiKey",
            {"subject": f"Alert:\n{wrong}"},
            {"subject": "${$}{apiKey} ${MyapiKey|ApiKey}"},
        )
        for wrong in ("${apiKey}", "${Message|apiKey}", "${json:apiKey|class:9} ${$}")
    ),
    _option("to", "is empty", {"to": []}, {"to": ["a@b"]}),
    _option(
        "from",
        "is not an e-mail address",
        {"from": "Pillion <pillion@station.example>"},
        {"from": "pillion+alerts@station.example"},
    ),
    _option(
        "to[1]",
        "is not an e-mail address",
        {"to": ["a@ops.example", "b@ops.example\r\nBcc: c@ops.example"]},
        {"to": ["a@ops.example", "b.c@xn--ops-0ra.example"]},
    ),
    _option(
        "subject",
        "has a placeholder that is not known",
        {"subject": "Alert: ${message}"},
        {"subject": "Alert: ${Message|class:80} for ${$}5"},
    ),
)
