"""Logs kopf's records under the operator's event names."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("pillion.operator")

_KOPF = logging.getLogger("kopf")


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a wrong record must not end a watch
            self.handleError(record)
            return
        if record.levelno == logging.ERROR and "will retry" in text:
            # One failed request. A watch that does not recover fails the probe /livez.
            logger.warning("kopf: %s", text, extra={"event": "watch-retried"})
        else:
            trace = record.exc_info
            logger.log(
                record.levelno, "kopf: %s", text, exc_info=trace, extra={"event": "kopf-told"}
            )


@contextmanager
def renamed_records() -> Iterator[None]:
    """Log kopf's records with the operator's own logger, inside the context."""
    handler, propagated = _Handler(), _KOPF.propagate
    _KOPF.addHandler(handler)
    _KOPF.propagate = False
    try:
        yield
    finally:
        _KOPF.removeHandler(handler)
        _KOPF.propagate = propagated
