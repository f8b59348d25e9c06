"""The errors: of the configuration, and of publishing."""

from collections.abc import Sequence


class PillionError(Exception):
    """The base of every error that this package raises itself."""


class ConfigurationError(PillionError, ValueError):
    """Invalid options, columns or save mode; raised on the driver, before any task.

    ``problems`` has a sentence for each problem, with the cause and the remedy.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"- {problem}" for problem in self.problems))

    def __reduce__(self) -> tuple[type["ConfigurationError"], tuple[tuple[str, ...]]]:
        return type(self), (self.problems,)


class PublishError(PillionError):
    """A task could not publish its rows. Spark may run it again: the deliverer recognises accepted
    rows by their identity."""


class DelivererUnavailableError(PublishError):
    """The deliverer did not accept a request within ``retrySeconds``."""


class RequestRefusedError(PublishError):
    """The deliverer refused a whole request, and would refuse it again."""


class ProtocolError(PublishError):
    """The answer is not from a deliverer."""


class InvalidIndicationsError(PublishError):
    """Rows are not valid indications, and ``onInvalid`` is ``fail``."""


class PublisherForgottenError(PublishError):
    """The deliverer was restarted after it accepted rows, so their outcome is unknown."""


class UndeliveredError(PublishError):
    """Accepted indications were discarded, and ``onUndelivered`` is ``fail``."""


class FlushTimeoutError(PublishError):
    """Not all of the task's indications reached ``flushLevel`` within ``flushTimeoutSeconds``."""
