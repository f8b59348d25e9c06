"""The cases of the rules of webhooks and their credentials; see ``support.resource_cases``."""

from support.resource_rules import Case
from support.resources import JSON

_URL = {"destination": "https://host/"}
_EVENTS: JSON = {**_URL, "protocol": "CloudEvents"}
_EXPORTS: JSON = {**_URL, "protocol": "CIM-XML"}
_SIGNED: JSON = {**_URL, "protocol": "StandardWebhooks"}
_WEBHOOK: JSON = {**_URL, "protocol": "Webhook"}
_SLACK: JSON = {**_WEBHOOK, "webhook": {"preset": "Slack"}}
_PAGER_DUTY: JSON = {**_WEBHOOK, "webhook": {"preset": "PagerDuty"}}

_PLUGIN: JSON = {"destination": "plugin://a", "protocol": "Plugin"}

_BASIC = {"basic": {"secretRef": {"name": "a"}}}
_API_KEY = {"apiKey": {"secretRef": {"name": "a"}}}
_SIGNING = {"signing": {"secretRefs": [{"name": "a"}, {"name": "a", "key": "old"}]}}


def _case(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    return Case(
        kind="ListenerDestination",
        field=f"spec.{field}",
        says=says,
        refused=refused,
        mended=mended,
    )


_SYSLOG = {"protocol": "Syslog", "destination": "syslogs://host"}
# A written URL of a file would break the rule about TLS, too.
_FILE = {"protocol": "File", "destinationFrom": {"secretKeyRef": {"name": "a"}}}


def _credentials(says: str, of: JSON, refused: JSON, mended: JSON) -> Case:
    given, instead = ({**of, "credentials": one} if one else of for one in (refused, mended))
    return _case("credentials", says, given, instead)


def _signing(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    first = {"name": "a"}
    given, instead = (
        {**_SIGNED, "credentials": {"signing": {"secretRefs": [first, one]}}}
        for one in (refused, mended)
    )
    return _case(f"credentials.signing.secretRefs[1].{field}", says, given, instead)


def _api_key(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    given, instead = (
        {**_PAGER_DUTY, "credentials": {"apiKey": {"secretRef": one}}} for one in (refused, mended)
    )
    return _case(f"credentials.apiKey.secretRef.{field}", says, given, instead)


def _template(says: str, refused: str, mended: str) -> Case:
    given, instead = ({**_WEBHOOK, "webhook": {"template": one}} for one in (refused, mended))
    return _case("webhook.template", says, given, instead)


WEBHOOK_CASES = (
    _credentials("has no signing", _SIGNED, _BASIC, {**_BASIC, **_SIGNING}),
    _case(
        "destination",
        "has a scheme that StandardWebhooks",
        {**_SIGNED, "destination": "plugin://a", "credentials": _SIGNING},
        {**_SIGNED, "credentials": _SIGNING},
    ),
    _case(
        "destination",
        "has a scheme that Webhook",
        {**_SLACK, "destination": "plugin://a"},
        _SLACK,
    ),
    _case(
        "destination",
        "names no plug-in",
        {**_PLUGIN, "destination": "plugin:///a"},
        {**_PLUGIN, "destination": "plugin://a/b?c"},
    ),
    _credentials("has no apiKey", _PAGER_DUTY, {}, _API_KEY),
    _credentials("has apiKey, which the body", _SLACK, _API_KEY, {}),
    _case(
        "credentials",
        "would be sent unencrypted",
        {**_PAGER_DUTY, "destination": "http://host/", "credentials": _API_KEY},
        {**_PAGER_DUTY, "destination": "http://localhost/", "credentials": _API_KEY},
    ),
    _case(
        "credentials.signing.secretRefs",
        "is empty",
        {**_SIGNED, "credentials": {"signing": {"secretRefs": []}}},
        # A signature needs no TLS: the secrets are not sent.
        {**_SIGNED, "destination": "http://host/", "credentials": _SIGNING},
    ),
    _signing("name", "is not the name", {"name": "A"}, {"name": "b"}),
    _signing("key", "is not a key", {"name": "a", "key": "a/b"}, {"name": "a", "key": "a.b"}),
    _api_key("name", "is not the name", {"name": "A"}, {"name": "b"}),
    _api_key("key", "is not a key", {"name": "a", "key": "a/b"}, {"name": "a", "key": "a.b"}),
    _case("webhook", "is missing", _WEBHOOK, _SLACK),
    _case("webhook", "has options of", {**_EVENTS, "webhook": {"preset": "Slack"}}, _EVENTS),
    _case("webhook", "has both preset", {**_WEBHOOK, "webhook": {}}, _SLACK),
    _case(
        "webhook",
        "has both preset",
        {**_WEBHOOK, "webhook": {"preset": "Slack", "template": "{}"}},
        {**_WEBHOOK, "webhook": {"template": "{}"}},
    ),
    _template("is no JSON object", "${Message}", '{"text": "${Message}"}'),
    _template("is no JSON object", '{"text": "${Message}"', '\n[\n"${Message|class:9}"\n]\n'),
    _template("has a placeholder", '{"a": "${message}"}', '{"a": "${$}{message} $"}'),
    _template("has a placeholder", '{"a": "$${xml:Message}"}', '{"a": "$${slack:Message:10}"}'),
    _template("has a placeholder", '{"a": "${Message"}', '{"a": "${json:properties}"}'),
)
