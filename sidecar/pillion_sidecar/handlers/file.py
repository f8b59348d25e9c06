"""The file handler: one line for each delivery, in the form of publishers. Lines that wait share a
sync."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.appending import Line
from pillion_sidecar.handlers.batches import unsent
from pillion_sidecar.handlers.content import content_of, data_parts
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.coroutine import CoroutineBatchHandler, Progress
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.folder import DeliveryFolder
from pillion_sidecar.handlers.transport.target import check_forms
from pillion_sidecar.protocols.file import PROTOCOL, FileOptions

_SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)
_encode = msgspec.json.encode


def render_line(delivery: Delivery) -> bytes:
    """Return a line of ``POST /v1/indications`` with the properties that the delivery sets. Raises
    ``UNSAYABLE`` if the body is no instance."""
    indication = delivery.indication
    content = content_of(indication, delivery.selection)
    parts = [b"".join(data_parts(content, delivery))[:-1]]
    if indication.source is not None:
        parts += (b',"source":', _encode(indication.source))
    if indication.group is not None:
        parts += (b',"group":', _encode(indication.group))
    return b"".join([*parts, b"}\n"])


@dataclass(frozen=True, slots=True)
class FileDestination:
    folder: DeliveryFolder
    name: str
    #: The file in messages.
    shown: str
    options: FileOptions

    async def deliver(
        self, lines: Sequence[bytes], progress: Progress
    ) -> Sequence[DeliveryOutcome]:
        """See :class:`pillion_sidecar.handlers.coroutine.DeliverBatch`. Success: a line is on the
        disk."""
        progress.doing = "waiting for other lines of the file"
        options = self.options
        batch = [Line(text, options.max_bytes, options.max_files) for text in lines]
        done, error = await self.folder.append(self.name, batch, progress)
        if error is None:
            return [_SUCCESS] * len(lines)
        detail = f"{self.shown}: {error}"
        rest = len(lines) - done
        if error.may_have:
            failures = [DeliveryOutcome(DeliveryResult.POST_DELIVERY_ERROR, detail)] * rest
        else:
            failed = DeliveryOutcome(DeliveryResult.ERROR, detail)
            failures = [failed, *[unsent(failed)] * (rest - 1)]
        return [*[_SUCCESS] * done, *failures]


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    check_forms(destination.destination, PROTOCOL)
    if context.delivery_folder is None:
        raise InvalidDestinationError(
            "this deliverer was started without --delivery-folder, the folder of such files",
            cause=HoldCause.PROTOCOL,
        )
    options = destination.options
    name = urlsplit(destination.destination).path.removeprefix("/")
    file = FileDestination(
        context.delivery_folder,
        name,
        "its file" if destination.url_is_secret else f"file {name}",
        options if isinstance(options, FileOptions) else FileOptions(),
    )
    return CoroutineBatchHandler(
        file.deliver,
        render=render_line,
        most=PROTOCOL.most_at_once,
        name=destination.name,
        timers=context.parts.timers,
        timeout=destination.timeout_seconds,
        slices=context.parts.slices,
    )
