"""OAuth 2.0 credentials of a destination (RFC 6749, 4.4: client credentials grant)."""

from dataclasses import field
from enum import StrEnum

from pillion_sidecar.config.schema.common import LABELLED, reference, secret_key_reference
from pillion_sidecar.config.schema.urls import HTTP, LOOPBACK, url_rules
from pillion_sidecar.fields import ListOf, Text, declared, matching, resource, text_matching

#: RFC 6749 3.3.
_SCOPE = r"[!#-\[\]-~]+"
MOST_SCOPES = 50

TOKEN_URL = Text(
    min_length=1,
    max_length=2048,
    rules=(
        *url_rules(HTTP, credentials="Put them into a Secret, and name it in secretRef."),
        matching(
            f"(?i:https)://.*|{LOOPBACK}",
            when="(?i:https?)://.*",
            message="would be sent the client's secret unencrypted",
            remedy="Write https://. (Plain http may lead to loopback only.)",
        ),
    ),
)


class ClientAuthentication(StrEnum):
    """RFC 6749 2.3.1."""

    BASIC = "Basic"
    POST = "Post"


@resource
class OAuth2:
    """Of one client. Equal values share their token."""

    token_url: str = declared(
        name="tokenURL",
        type=TOKEN_URL,
        description="The URL of the token endpoint.",
    )
    client_id: str = declared(
        name="secretRef",
        type=reference("Secret"),
        description=f"The Secret, {LABELLED}, with the keys clientId and clientSecret.",
    )
    client_secret: str = field(repr=False)
    client_authentication: ClientAuthentication = declared(
        default=ClientAuthentication.BASIC,
        description="How the client authenticates to the token endpoint. Basic: in the header "
        "Authorization (client_secret_basic). Post: in the body (client_secret_post).",
    )
    scopes: tuple[str, ...] = declared(
        default=(),
        type=ListOf(
            item=text_matching(
                _SCOPE,
                max_length=512,
                message="is no scope",
                remedy="Write one scope, without spaces and quotation marks.",
            ),
            max_items=MOST_SCOPES,
        ),
        description="The scopes that the token shall have.",
    )
    audience: str | None = declared(
        default=None,
        type=text_matching(
            "[!-~]+",
            max_length=2048,
            message="is no audience",
            remedy="Write printable ASCII without spaces.",
        ),
        assumed="no audience is sent",
        description="The parameter audience of the token request, which some endpoints need.",
    )
    ca_certificates: bytes | None = declared(
        default=None,
        name="caSecretRef",
        type=secret_key_reference("the certificates, in PEM", key="ca.crt"),
        assumed="the authorities that the system trusts",
        description=f"The Secret, {LABELLED}, with the certificate authorities of the token "
        "endpoint, instead of those that the system trusts.",
    )
