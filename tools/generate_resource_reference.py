"""Writes ``resources.md`` and ``protocols.md`` of ``docs/reference/`` from the declarations."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pillion_sidecar.config.schema import API_VERSION, KINDS
from pillion_sidecar.fields import (
    Boolean,
    Field,
    FieldType,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Number,
    Quantity,
    Rule,
    Struct,
    Text,
)
from pillion_sidecar.protocols import PROTOCOLS, Protocol

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
_INTRODUCTION = f"""\
<!-- Made by `make generate`; change pillion_sidecar.config.schema instead. -->
# Resources

Five kinds of `{API_VERSION}` configure a deliverer: an **IndicationSubscription** combines an
**IndicationFilter** (which indications) with a **ListenerDestination** (the target), and names the
**IndicationService** (how to deliver) that serves it; an **IndicationReplay** delivers again what
the history of a service has. Names are DSP1054's, in camel case; all times
are whole seconds. In a cluster they are custom resources; a standalone deliverer reads the same
YAML from a folder: `pillion sidecar --resources DIR`. `pillion validate DIR` lists every problem
of a folder, with its remedy.

Fields that are not listed here are refused. A folder may also hold Secrets (`data` or
`stringData`) that carry the label `pillion.dev/credentials: "true"`; without it no destination may
use them. Objects of other APIs are ignored, with a warning. References go by name, within one
namespace. YAML is read by the 1.2 core schema (`on` and `yes` are texts), without aliases; JSON is
read as YAML.

Two rules differ from DSP1054 or from common practice:

- A `destination` needs its scheme. DSP1054 assumes http for one without; Pillion refuses it,
  since a URL that silently means "without TLS" is usually a mistake.
- By default indications are kept on disk if the deliverer has one: always in a cluster, standalone
  with `--journal DIR`. Without a disk a service without `durability` runs as `Memory`, and one that
  asks for more is refused.

"""

#: Kubernetes' own bound of a name.
_LONGEST_NAME = 253


def render() -> str:
    """The page, in Markdown."""
    return _INTRODUCTION + "\n".join("\n".join(_kind(kind)) for kind in KINDS)


def render_protocols(protocols: Iterable[Protocol]) -> str:
    """The page about the protocols, in Markdown."""
    known = tuple(protocols)
    lines = [
        "<!-- Made by `make generate`; change pillion_sidecar.protocols instead. -->",
        "# Protocols",
        "",
        "The values of `protocol` of a [ListenerDestination](resources.md#listenerdestination).",
        "",
        "| protocol | URL | port without one | `credentials` | content of one delivery |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in known:
        urls = ", ".join(f"`{scheme.name}://`" for scheme in one.schemes)
        ports = ", ".join(str(scheme.port or "none") for scheme in one.schemes)
        kinds = ", ".join(f"`{kind}`" for kind in one.credentials) or "none"
        lines.append(f"| `{one.name}` | {urls} | {ports} | {kinds} | {one.summary} |")
    for one in known:
        lines += ["", f"## {one.name}", "", one.manual]
        if one.extra:
            lines += ["", f"It needs the extra `{one.extra}`: `pip install pillion[{one.extra}]`."]
    return "\n".join([*lines, ""])


def _kind(kind: Kind) -> Iterator[str]:
    yield f"## {kind.name}"
    yield ""
    yield kind.description
    yield ""
    yield f"Short name `{kind.short_name}`. {kind.spec_description}"
    yield ""
    yield "| field | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    yield from _rows(kind.spec, "")
    yield ""
    names = [_rule(rule, "metadata.name") for rule in kind.name_rules]
    if kind.name_length < _LONGEST_NAME:
        yield f"Its name has at most {kind.name_length} characters."
        yield ""
    yield from _section("Rules beyond types and bounds:", [*names, *_rules(kind.spec, "")])
    yield from _section("In a cluster, after its creation:", list(_transitions(kind.spec, "")))
    yield "`status`:"
    yield ""
    yield "| field | meaning |"
    yield "| --- | --- |"
    for field in kind.status.fields:
        yield f"| `{field.name}` | {_cell(field.description)} |"
    yield ""


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield title
        yield ""
        yield from lines
        yield ""


def _rows(struct: Struct, prefix: str) -> Iterator[str]:
    for field in struct.fields:
        name = f"{prefix}{field.name}"
        absent = _cell(_absent(field))
        yield f"| `{name}` | {_cell(_type(field.type))} | {absent} | {_cell(field.description)} |"
        match field.type:
            case Struct() as below:
                yield from _rows(below, f"{name}.")
            case ListOf(item=Struct() as below):
                yield from _rows(below, f"{name}[].")


def _absent(field: Field) -> str:
    if field.required:
        return "**required**"
    if field.default is not None and not isinstance(field.type, Struct):
        return f"`{json.dumps(field.default)}`" if field.default != [] else "none"
    return field.assumed


def _type(kind: FieldType) -> str:
    match kind:
        case Text(values=values) if values:
            return " or ".join(f"`{value}`" for value in values)
        case Text():
            return f"text, at most {kind.max_length:,} characters"
        case Integer():
            return f"whole number, {kind.minimum:,} to {kind.maximum:,}"
        case Number():
            return f"number, {kind.minimum:,} to {kind.maximum:,}"
        case Boolean():
            return "`true` or `false`"
        case Quantity():
            return "Kubernetes quantity more than 0"
        case ListOf():
            return f"list of at most {kind.max_items:,}"
        case MapOf():
            return f"object of texts, at most {kind.max_properties:,}"
        case Struct():
            return "object"


def _rules(kind: FieldType, path: str) -> Iterator[str]:
    match kind:
        case Struct():
            for field in kind.fields:
                yield from _rules(field.type, f"{path}.{field.name}".removeprefix("."))
            yield from (_rule(rule, path) for rule in kind.rules)
        case ListOf():
            yield from _rules(kind.item, f"{path}[]")
        case MapOf():
            yield from (_rule(rule, path) for rule in kind.rules)
            yield from _rules(kind.value, f"{path}.*")
        case Text():
            yield from (_rule(rule, path) for rule in kind.rules)


def _transitions(kind: FieldType, path: str) -> Iterator[str]:
    match kind:
        case Struct():
            for field in kind.fields:
                yield from _transitions(field.type, f"{path}.{field.name}".removeprefix("."))
            for rule in kind.transitions:
                name = f"{path}.{rule.field}".strip(".")
                yield f"- `{name}` {rule.message}. {rule.remedy}"


def _rule(rule: Rule, path: str) -> str:
    name = f"{path}.{rule.field}".strip(".") if rule.field else path
    return f"- Refused when `{name}` {rule.message}. {rule.remedy}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    """Write the pages."""
    (PAGES / "resources.md").write_text(render(), encoding="utf-8")
    protocols = render_protocols(PROTOCOLS.values())
    (PAGES / "protocols.md").write_text(protocols, encoding="utf-8")


if __name__ == "__main__":
    main()
