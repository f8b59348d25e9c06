"""Presets of the Webhook handler: a template for each service, and what it answers for success.

Lengths keep the limits of a service, also if each character needs the longest escape of JSON.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pillion_sidecar.protocols.webhook import Preset

_SLACK = """
{
  "text": "*${severity}* ${slack:Message|Description|class:39000}\\n${slack:class:255}, \
${slack:SystemName|source:255}, ${time}",
  "unfurl_links": false,
  "unfurl_media": false
}
"""
# Runs of text have no Markdown, so no value makes a link.
_TEAMS = """
{
  "type": "message",
  "attachments": [
    {
      "contentType": "application/vnd.microsoft.card.adaptive",
      "contentUrl": null,
      "content": {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
          {
            "type": "RichTextBlock",
            "inlines": [
              {"type": "TextRun", "text": "${severity}: ", "weight": "Bolder"},
              {"type": "TextRun", "text": "${Message|Description|class:3500}"}
            ]
          },
          {
            "type": "RichTextBlock",
            "inlines": [
              {
                "type": "TextRun",
                "text": "${class:255}, ${SystemName|source:255}, ${time}",
                "isSubtle": true
              }
            ]
          }
        ]
      }
    }
  ]
}
"""
_PAGER_DUTY = """
{
  "routing_key": "${apiKey}",
  "event_action": "${action}",
  "dedup_key": "${correlation}",
  "client": "Pillion",
  "payload": {
    "summary": "${Message|Description|class:1024}",
    "source": "${SystemName|source:255}",
    "severity": "${severity}",
    "timestamp": "${time}",
    "component": "${AlertingManagedElement:255}",
    "group": "${filterName:255}",
    "class": "${class:255}",
    "custom_details": {"properties": "${json:properties:400000}"}
  }
}
"""
_ALERTMANAGER = """
[
  {
    "labels": {
      "alertname": "${class:255}",
      "severity": "${severity}",
      "service": "${service:255}",
      "source": "${source:255}",
      "filter": "${filterName:255}",
      "system": "${SystemName:255}",
      "element": "${AlertingManagedElement:1024}",
      "alert_type": "${AlertType:255}",
      "probable_cause": "${ProbableCause:255}",
      "event_id": "${EventID:255}"
    },
    "annotations": {
      "summary": "${Message|Description|class:1024}",
      "description": "${Description:8192}",
      "identifier": "${identifier:1024}"
    },
    "startsAt": "${time}",
    "endsAt": "${ends}"
  }
]
"""


@dataclass(frozen=True, slots=True)
class Service:
    template: str
    #: Whether an answer with a status and a body of 2xx is success.
    succeeds: Callable[[int, bytes], bool]
    #: Success in words, for the text of an outcome.
    success: str
    #: What a 400 about the API key contains, in lower case; empty: it needs no key.
    key: bytes = b""
    #: Whether the body decides, too.
    answers_in_body: bool = False


SERVICES = {
    Preset.SLACK: Service(
        _SLACK,
        lambda status, body: status == 200 and body.strip() == b"ok",
        "HTTP 200 and the text ok",
        answers_in_body=True,
    ),
    Preset.TEAMS: Service(_TEAMS, lambda status, _: status == 202, "HTTP 202"),
    Preset.PAGER_DUTY: Service(
        _PAGER_DUTY, lambda status, _: status == 202, "HTTP 202", key=b"routing"
    ),
    Preset.ALERTMANAGER: Service(_ALERTMANAGER, lambda status, _: status == 200, "HTTP 200"),
}
