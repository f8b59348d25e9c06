"""The options of the data source, read once on the driver.

Spark passes lower-cased names, so case does not matter. All problems are reported at once.
"""

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from pyspark_pillion.deliverer import Access, Address
from pyspark_pillion.errors import ConfigurationError
from pyspark_pillion.tracing import parse_parent, parse_state

DEFAULT_URL = "http://127.0.0.1:8288"

#: Options of a writer that Spark adds, in lower case.
SPARKS_OWN = frozenset({"queryname", "checkpointlocation"})

#: As Spark passes them from ``save("/path")`` and ``start("/path")``, in lower case.
_PLACES = frozenset({"path", "paths"})

#: The schemes of ``rejectsPath`` for which pyarrow has a file system.
REJECTS_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")

#: Spark gives a writer no option of a table.
_TABLE = (
    "; if this writes to a table: Spark passes on none of its options, so drop it, and write CREATE"
    " TEMPORARY VIEW … USING pillion OPTIONS (source …)"
)

#: Levels for the end of a task alone, and what it waits for.
_AWAITED = {"stable": "stores", "delivered": "delivery"}

#: DSP0004: letters, digits and underscores, not beginning with a digit.
_CLASS_NAME = re.compile(r"[^\W\d]\w*")


def split_url(url: str) -> Address:
    """Parse ``http://HOST:PORT`` or ``https://HOST:PORT``. Raises ValueError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"is {url!r}: not a URL; write http://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"is {url!r}: write http://HOST:PORT, the deliverer's intake address, or"
            " https://HOST:PORT, a gateway's"
        )
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"is {url!r}: leave out all but {parts.scheme}://HOST:PORT")
    encrypted = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if encrypted else 80), encrypted)


def _url(text: str) -> str:
    split_url(text)
    return text


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    if not text.isprintable():
        raise ValueError(f"is {text!r}: leave out control characters")
    return text


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for choice in choices:
            if text.strip().lower() == choice:
                return choice
        raise ValueError(f"is {text!r}: choose one of {', '.join(choices)}")

    return parse


def _ack(text: str) -> str:
    if (level := text.strip().lower()) in _AWAITED:
        raise ValueError(
            f"is {text!r}: choose accepted or durable; that a task waits for {_AWAITED[level]} is"
            " said by flushLevel"
        )
    return _choice("accepted", "durable")(text)


def class_name(text: str) -> str:
    """Raises ValueError unless the text can be the name of a CIM class."""
    if _CLASS_NAME.fullmatch(text) is None:
        raise ValueError(
            f"is {text!r}: the name of a class has letters, digits and underscores, and does not"
            " begin with a digit"
        )
    return text


def _boolean(text: str) -> bool:
    return _choice("true", "false")(text) == "true"


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"is {text!r}: write a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"is {number}: choose from {least} to {most}")
        return number

    return parse


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"is {text!r}: write a number of seconds") from None
    if not 0 < number <= 86400:
        raise ValueError(f"is {text}: choose more than 0 and at most 86400 seconds")
    return number


def _absolute(text: str) -> str:
    path = text.removeprefix("file://")
    if "://" in path or not os.path.isabs(path):
        raise ValueError(
            f"is {text!r}: write an absolute path that each executor can write to, such as a"
            " mounted volume"
        )
    return path


def _rejects(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if separator and scheme.lower() in REJECTS_SCHEMES and rest.strip("/"):
        return text
    path = text.removeprefix("file://")
    if "://" in path or not os.path.isabs(path):
        raise ValueError(
            f"is {text!r}: write an absolute path that each executor can write to, such as a"
            f" mounted volume, or a URI of {', '.join(REJECTS_SCHEMES)}"
        )
    return path


def _mounted(text: str) -> str:
    # Not quoted: the value may be a token.
    if not os.path.isabs(text) or not text.isprintable():
        raise ValueError("is not an absolute path of a file that each executor can read")
    return text


def _columns(text: str) -> Mapping[str, str]:
    renamed: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, column = (part.strip() for part in pair.partition("="))
        if not (name and equals and column):
            raise ValueError(f"has {pair!r}: write Property=column, Property=column")
        if column in renamed or name in renamed.values():
            raise ValueError(f"has {pair!r}: {column!r} or {name!r} was there before")
        renamed[column] = name
    return renamed


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table of options in ``docs/spark.md``."""

    name: str
    default: str
    parse: Callable[[str], Any]
    meaning: str


def _option(
    name: str, default: Any, parse: Callable[[str], Any], meaning: str, *, shown: str = ""
) -> Any:
    """Declare a field of Options. ``shown`` is the default in words."""
    shown = shown or ("none" if default is None else f"`{default}`")
    return field(default=default, metadata={"option": Option(name, shown, parse, meaning)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of one save or query."""

    source: str = _option(
        "source",
        MISSING,
        _text,
        "publisher of the rows, the same in every run of the job: half of the duplicate key",
        shown="required",
    )
    url: str | None = _option(
        "url",
        None,
        _url,
        "the deliverer's intake address, as each executor reaches it",
        shown=f"`PILLION_URL` in the task's environment, else `{DEFAULT_URL}`",
    )
    ca_file: str | None = _option(
        "caFile",
        None,
        _mounted,
        "for a gateway (`https`): file on each executor with the CA certificates, in PEM, that"
        " verify its certificate",
        shown="the system's CA certificates",
    )
    token_file: str | None = _option(
        "tokenFile",
        None,
        _mounted,
        "for a gateway (`https`): file on each executor with the service-account token to send;"
        " it is read for each request",
    )
    class_name: str = _option(
        "className", "CIM_AlertIndication", class_name, "class of structured rows"
    )
    #: Property name by column name.
    columns: Mapping[str, str] = _option(
        "columns",
        MISSING,
        _columns,
        "for structured rows: `Property=column, …` where a column has not its property's name",
        shown="none",
    )
    ack: str = _option(
        "ack",
        "accepted",
        _ack,
        "level that a request must reach before it is answered: `accepted`, `durable`",
    )
    batch_size: int = _option("batchSize", 5000, _integer(1, 100_000), "maximum rows in a request")
    batch_bytes: int = _option(
        "batchBytes",
        4 * 1024 * 1024,
        _integer(1024, 64 * 1024 * 1024),
        "maximum bytes in a request; a longer row has a request of its own",
    )
    timeout: float = _option(
        "timeoutSeconds", 30, _seconds, "maximum time to wait for the answer to a request"
    )
    retry: float = _option(
        "retrySeconds",
        120,
        _seconds,
        "maximum time to retry, with growing pauses, while the deliverer accepts nothing",
    )
    #: None for `durable` where the deliverer has a disk, else `accepted`.
    flush_level: str | None = _option(
        "flushLevel",
        None,
        _choice("accepted", "durable", "stable", "delivered"),
        "level that a task's rows must reach before the task ends: `accepted`, `durable`,"
        " `stable`, `delivered`",
        shown="`durable` if the service has durability `Disk`, else `accepted`",
    )
    flush_timeout: float = _option(
        "flushTimeoutSeconds",
        300,
        _seconds,
        "maximum time to wait for flushLevel; then the task fails",
    )
    on_undelivered: str = _option(
        "onUndelivered",
        "report",
        _choice("fail", "report"),
        "when accepted rows were discarded before the task ends: `fail` the task, or `report` the"
        " count at commit",
        shown="`fail` with `flushLevel` `delivered`, else `report`",
    )
    redeliver: bool = _option(
        "redeliver",
        True,
        _boolean,
        "whether a row that the deliverer knows goes again to the listeners that missed it",
        shown="`true`",
    )
    on_invalid: str = _option(
        "onInvalid",
        "fail",
        _choice("fail", "rejects"),
        "when rows are no indications: `fail` the save at its commit, or `rejects`: write them to"
        " rejectsPath",
    )
    rejects_path: str | None = _option(
        "rejectsPath",
        None,
        _rejects,
        "directory for rejected rows, one NDJSON file for each task attempt: a path on the"
        " executor, or a URI such as `s3://bucket/rejects`",
    )
    report_path: str | None = _option(
        "reportPath",
        None,
        _absolute,
        "file on the driver to which each commit appends its counts, as one line of JSON",
    )
    traceparent: str | None = _option(
        "traceparent",
        None,
        parse_parent,
        "span whose trace the rows belong to (W3C Trace Context)",
        shown="for a batch of `publish()` the driver's current OpenTelemetry span, else"
        " `TRACEPARENT` in the driver's environment",
    )
    tracestate: str | None = _option(
        "tracestate",
        None,
        parse_state,
        "state of the trace in `traceparent`",
        shown="that of the default of `traceparent`, else none",
    )

    @property
    def access(self) -> Access:
        return Access(ca_file=self.ca_file, token_file=self.token_file)

    def address(self, environ: Mapping[str, str]) -> Address:
        """The deliverer's address in this environment. Raises ConfigurationError."""
        try:
            found = split_url(self.url or environ.get("PILLION_URL") or DEFAULT_URL)
        except ValueError as error:
            raise ConfigurationError([f"PILLION_URL {error}"]) from None
        given = {"caFile": self.ca_file, "tokenFile": self.token_file}
        problems = [
            f"option {name} is given: it is for a gateway, so set option url to https://HOST:PORT"
            for name, value in given.items()
            if value is not None and not found.encrypted
        ]
        if problems:
            raise ConfigurationError(problems)
        return found


#: The options by the names of their fields.
TABLE: Mapping[str, Option] = {one.name: one.metadata["option"] for one in fields(Options)}


def parse_options(given: Mapping[str, str]) -> Options:
    """Read the options. Raises ConfigurationError with every problem."""
    known = {option.name.lower(): (field, option) for field, option in TABLE.items()}
    values: dict[str, Any] = {"columns": {}}
    problems: list[str] = []
    for name, text in given.items():
        if name.lower() not in known:
            if name.lower() in _PLACES:
                problems.append(_place(str(text)))
            elif name.lower() not in SPARKS_OWN:
                problems.append(_unknown(name))
            continue
        field_name, option = known[name.lower()]
        try:
            values[field_name] = option.parse(str(text))
        except ValueError as error:
            problems.append(f"option {option.name} {error}")
    problems += _together(values, named={name.lower() for name in given})
    if problems:
        raise ConfigurationError(problems)
    if values.get("ack") == "durable":
        values.setdefault("flush_level", "durable")
    if values.get("on_undelivered") == "fail":
        # Only a delivery can tell, so who asks for this alone waits for it.
        values.setdefault("flush_level", "delivered")
    if values.get("flush_level") == "delivered":
        values.setdefault("on_undelivered", "fail")
    return Options(**values)


def _together(values: Mapping[str, Any], *, named: set[str]) -> list[str]:
    problems = []
    if "source" not in named:
        problems.append(
            "option source is missing: name the publisher, the same in every run of the job"
            + ("" if named else _TABLE)
        )
    rejects = values.get("on_invalid") == "rejects"
    if rejects and "rejectspath" not in named:
        problems.append("option onInvalid is 'rejects': say where with option rejectsPath")
    if "tracestate" in named and "traceparent" not in named:
        problems.append("option tracestate is given: set option traceparent to its trace as well")
    if "rejectspath" in named and not rejects:
        problems.append("option rejectsPath is given: set option onInvalid to 'rejects' as well")
    return problems


def _place(text: str) -> str:
    return (
        f"the path {text!r} means nothing: call save() or start() without it, and give the"
        " deliverer's address as option url"
    )


def _unknown(name: str) -> str:
    names = {option.name.lower(): option.name for option in TABLE.values()}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    remedy = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(names.values())}"
    return f"option {name} is unknown: {remedy}"
