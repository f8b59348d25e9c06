"""Whether a gateway keeps copies of other deliverers' journals, and how much of them."""

from pillion_sidecar.config.schema.history import LONGEST_DAYS
from pillion_sidecar.fields import Integer, Quantity, Rule, amount, declared, resource, structure

LEAST_BYTES = "64Mi"
MOST_SESSIONS = 10_000
#: The copies of all namespaces together take at most one in so many bytes of the volume.
PARTS_OF_VOLUME = 2


@resource
class JournalCopies:
    """For each namespace the same."""

    maximum_bytes: str = declared(
        type=Quantity(),
        description="The bytes that the copies of one namespace may take on the volume, such as "
        "2Gi. Beyond them a writer is refused. At least 64Mi. The copies of all namespaces that "
        "may publish take at most half of deliverer.storage.sizeLimit; the journal and the "
        "history get the rest.",
    )
    maximum_sessions: int = declared(
        default=1000,
        type=Integer(minimum=1, maximum=MOST_SESSIONS),
        description="Maximum number of journals of one namespace. Beyond it another one is "
        "refused.",
    )
    maximum_age_seconds: float = declared(
        default=604_800.0,
        type=Integer(minimum=3600, maximum=LONGEST_DAYS * 86_400),
        description="Seconds after which a copy that nobody has written to is dropped, but only "
        "if another journal of its namespace would else be refused. An event and a metric tell it.",
    )


JOURNAL_COPIES = structure(
    JournalCopies,
    rules=(
        Rule(
            cel=f'quantity(string(self.maximumBytes)).compareTo(quantity("{LEAST_BYTES}")) >= 0',
            holds=lambda copies: amount(copies["maximumBytes"]) >= amount(LEAST_BYTES),
            field="maximumBytes",
            message="is too small for copies of journals",
            remedy=f"Write at least {LEAST_BYTES}.",
        ),
    ),
)
