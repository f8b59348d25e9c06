"""How long outcomes are kept, and with which bodies."""

from enum import StrEnum

from pillion_sidecar.fields import Integer, Quantity, Rule, amount, declared, resource, structure

LONGEST_DAYS = 366
LEAST_BYTES = "1Mi"
#: It takes at most one in so many bytes of the volume; the journal takes four fifths.
PARTS_OF_VOLUME = 7


class HistoryBodies(StrEnum):
    DISCARDED = "Discarded"
    ALL = "All"
    NONE = "None"


@resource
class HistoryPolicy:
    maximum_age_seconds: float = declared(
        default=604_800.0,
        type=Integer(minimum=60, maximum=LONGEST_DAYS * 86_400),
        description="Seconds for which an outcome is kept. It is removed up to an eighth of this "
        "later.",
    )
    #: None: by the volume.
    maximum_bytes: str | None = declared(
        default=None,
        type=Quantity(),
        assumed="a tenth of deliverer.storage.sizeLimit; 128Mi without one",
        description="The bytes that the history may take on the volume, such as 200Mi. Beyond "
        "them the oldest outcomes are removed. At most a seventh of "
        "deliverer.storage.sizeLimit, and at least 1Mi.",
    )
    bodies: HistoryBodies = declared(
        default=HistoryBodies.DISCARDED,
        description="The outcomes that keep the indication itself, so that it can be shown, "
        "exported and delivered again. Discarded: those of discarded indications. All: also "
        "those of delivered ones. None: no outcome.",
    )


HISTORY = structure(
    HistoryPolicy,
    rules=(
        Rule(
            cel="!has(self.maximumBytes) || "
            f'quantity(string(self.maximumBytes)).compareTo(quantity("{LEAST_BYTES}")) >= 0',
            holds=lambda history: (
                "maximumBytes" not in history
                or amount(history["maximumBytes"]) >= amount(LEAST_BYTES)
            ),
            field="maximumBytes",
            message="is too small for a history",
            remedy=f"Write at least {LEAST_BYTES}.",
        ),
    ),
)
