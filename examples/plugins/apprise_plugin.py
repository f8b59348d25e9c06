#!/usr/bin/env python3
"""A plug-in that notifies by Apprise: e-mail, chat, SMS and some hundred services more.

PILLION_PLUGIN_APPRISE_URLS has Apprise's URLs, with a space between two. They may be secrets.
"""

import os

import apprise

from pillion_plugin import Delivery, Retry, run

TYPES = {5: "warning", 6: "failure", 7: "failure"}
services = apprise.Apprise()
if not all(services.add(url) for url in os.environ["PILLION_PLUGIN_APPRISE_URLS"].split()):
    raise SystemExit("PILLION_PLUGIN_APPRISE_URLS: a URL that Apprise does not know")


def deliver(delivery: Delivery) -> None:
    said = delivery.properties.get("Message") or delivery.class_name
    severity = TYPES.get(delivery.properties.get("PerceivedSeverity"), "info")
    if not services.notify(title=delivery.class_name, body=str(said), notify_type=severity):
        raise Retry("Apprise could not notify all services; its log says why")


run(deliver, name="apprise", version=apprise.__version__, in_flight=5)
