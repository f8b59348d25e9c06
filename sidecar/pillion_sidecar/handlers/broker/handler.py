"""Handlers that publish CloudEvents, one message for each delivery."""

import contextlib
from typing import ClassVar

from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.handlers.cloudevents import kept_event, render
from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.transport.exchange import Sender
from pillion_sidecar.handlers.transport.handler import MessageHandler
from pillion_sidecar.indication import Indication, Selection

#: Of a message with one event in structured mode.
MEDIA_TYPE = "application/cloudevents+json"


class BrokerHandler(MessageHandler):
    """Delivers to one broker."""

    form: ClassVar[str] = "a CloudEvent"

    def __init__(self, *, sender: Sender, service_name: str, discreet: bool) -> None:
        """``discreet``: no text of the broker is shown."""
        super().__init__(sender=sender)
        self.service_name = service_name
        self.discreet = discreet

    def render(self, delivery: Delivery) -> bytes:
        """An event in JSON."""
        kept = kept_event(delivery.indication, delivery.selection, self.service_name)
        return render(kept, delivery)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        with contextlib.suppress(*UNSAYABLE):
            kept_event(indication, selection, self.service_name)
