"""``pillion sidecar``: run a deliverer."""

import argparse
import asyncio
import gc
import ipaddress
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pillion_cli.arguments import Options, whole_number
from pillion_cli.exits import CommandError, Exit, gc_disabled, short_collections
from pillion_cli.output import OutputError
from pillion_cli.serving import (
    add_logging_arguments,
    check_listeners,
    heed_signals,
    host_and_port,
    leave_word,
    start_logging,
)
from pillion_sidecar.app import Deliverer, StartFailed
from pillion_sidecar.clock import SystemClock
from pillion_sidecar.config.addresses import Address, AddressPolicy
from pillion_sidecar.descriptors import raise_limit
from pillion_sidecar.settings import (
    INTAKE_PORT,
    OPERATOR_CONSOLE,
    POD_UID,
    TELEMETRY_PORT,
    GatewayEndpoint,
    PluginEndpoint,
    Settings,
    TLSFiles,
)
from pillion_sidecar.supervision import PartFailed, first
from pillion_sidecar.telemetry.tracing import create_spans

if TYPE_CHECKING:
    from pillion_sidecar.telemetry.spans import Spans

#: Placeholder of --gateway for the name of the gateway's IndicationService.
SERVICE = "{service}"
#: Switch interval of the interpreter: the maximum wait of the committing thread for a busy event
#: loop, instead of 5 ms.
SWITCH_SECONDS = 0.0005
#: Seconds of a full collection after which what survives it is frozen: all destinations wait.
LONGEST_COLLECTION = 0.005
LARGEST_DESTINATIONS = 1_000_000
#: A plug-in's name, as in plugin://NAME.
_PLUGIN_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SOCKET = "unix:"
#: Bytes of the path of a Unix socket on Linux (unix(7)), without its NUL.
_LONGEST_SOCKET_PATH = 107
HELP = f"""\
Run a deliverer: accept indications from publishers, and deliver each to every subscribed
listener, in order, with retry.

The folder holds YAML files of kinds IndicationService, ListenerDestination, IndicationFilter and
IndicationSubscription (apiVersion pillion.dev/v1alpha1), and of Secrets that destinations name.
A change of the folder takes effect within a second; an invalid one is reported, and the last
valid one stays in force. SIGTERM closes intake, delivers for shutdownGracePeriodSeconds, and ends.
Instead of such files the folder may hold a configuration that the operator has rendered.

With --journal accepted indications are kept on disk until they are delivered: they survive SIGTERM,
a crash and kill -9, and the next run on the same folder delivers them. Only one deliverer uses a
folder at a time. Without it queues are in memory: at the end pending indications are discarded,
each with a log line; when the process is killed they are lost.

With --token-keys it is a gateway: it admits tokens of the service accounts that its
IndicationService allows (publishers), over TLS. With --gateway it relays to one.

The first line of output is {{"intake": URL, "telemetry": URL}}, and "administration" if it has its
own listener; logs go to standard error, or to --log-file.

examples:
  pillion sidecar --resources examples/first-subscription
  pillion sidecar --resources DIR --journal /var/lib/pillion
  pillion sidecar --resources DIR --intake 127.0.0.1:0 --telemetry 0.0.0.0:{TELEMETRY_PORT}
  pillion sidecar --resources DIR --wait-for-configuration --administration 127.0.0.1:8290
  pillion sidecar --resources DIR --intake 0.0.0.0:8288 --administration 127.0.0.1:8290 \\
    --intake-tls-certificate tls.crt --intake-tls-key tls.key --token-keys token-keys.json
  pillion sidecar --resources DIR --log-format logfmt --log-level DEBUG
  pillion sidecar --resources DIR --plugin "tickets=/opt/tickets --queue ops"

exit codes: 0 stopped by SIGTERM, SIGHUP or Ctrl-C, 1 the start or the run failed,
2 a wrong command line.
"""


def add_gateway_arguments(options: Options) -> None:
    gateway = options.group(
        "gateway",
        "Access to a gateway. The files are read again when they change, and may be created later.",
    )
    gateway.file(
        "--intake-tls-certificate FILE", "serve the intake over TLS with this certificate, in PEM"
    )
    gateway.file("--intake-tls-key FILE", "the certificate's key, in PEM")
    gateway.file("--token-keys FILE", "require tokens that these keys verify (token-keys.json)")
    relay = options.group("relay", "The gateway that this deliverer relays to.")
    relay.value("--gateway URL", f"its URL; {SERVICE} stands for the name of its IndicationService")
    relay.file(
        "--gateway-ca FILE",
        "the CA certificates that verify its certificate, in PEM [the system's]",
    )
    relay.file("--gateway-token FILE", "the token to send [none]")


def intake_tls(args: argparse.Namespace) -> TLSFiles | None:
    """Return the certificate and key of the intake. Raises CommandError."""
    certificate, key = args.intake_tls_certificate, args.intake_tls_key
    if certificate is None and key is None:
        return None
    if key is None:
        raise _wrong("--intake-tls-certificate needs --intake-tls-key FILE")
    if certificate is None:
        raise _wrong("--intake-tls-key needs --intake-tls-certificate FILE")
    return TLSFiles(certificate=certificate, key=key)


def token_keys(args: argparse.Namespace) -> Path | None:
    """Check --token-keys. Raises CommandError."""
    keys: Path | None = args.token_keys
    if keys is None:
        return None
    if args.intake_tls_certificate is None:
        raise _wrong(
            "--token-keys needs --intake-tls-certificate FILE: tokens are never sent unencrypted"
        )
    if args.administration is None:
        raise _wrong(
            "--token-keys needs --administration HOST:PORT, such as 127.0.0.1:8290: a publisher"
            " must not drain or purge"
        )
    return keys


def gateway_access(args: argparse.Namespace) -> GatewayEndpoint | None:
    """Return how to reach the gateway. Raises CommandError."""
    url: str | None = args.gateway
    if url is None:
        for name in ("gateway_ca", "gateway_token"):
            if getattr(args, name) is not None:
                raise _wrong(f"--{name.replace('_', '-')} needs --gateway URL")
        return None
    # As the host or the port.
    scheme = _scheme(url.replace(SERVICE, "1"))
    if scheme is None:
        raise _wrong(f"--gateway: {url!r} is not a URL such as https://pillion-{SERVICE}.team:8288")
    if scheme == "http" and (args.gateway_ca or args.gateway_token):
        raise _wrong(f"--gateway: {url!r} is not https, and a token is never sent unencrypted")
    return GatewayEndpoint(url=url, ca=args.gateway_ca, token=args.gateway_token)


def _scheme(url: str) -> str | None:
    """None for a URL with more than a host and port."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    return parts.scheme if known and bare else None


def _wrong(text: str) -> CommandError:
    return CommandError(text, code=Exit.USAGE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.file("--resources DIR", "the folder of resource files", required=True)
    _add_journal(options)
    _add_delivery_folder(options)
    options.value("--service NAME", "IndicationService to run [the only one in the folder]")
    options.value(
        "--intake HOST:PORT",
        "address of the intake; port 0 takes a free one",
        address,
        Address("127.0.0.1", INTAKE_PORT),
    )
    options.value(
        "--telemetry HOST:PORT",
        "address of /metrics and the probes",
        address,
        Address("127.0.0.1", TELEMETRY_PORT),
    )
    options.value(
        "--administration HOST:PORT",
        "address of /v1/queues, /v1/outcomes, /v1/status, /drain and others [that of --intake]",
        address,
    )
    options.file(
        "--operator-token-file FILE",
        "let requests with this file's token as a bearer read /v1/queues at the telemetry address",
    )
    options.flag(
        "--wait-for-configuration",
        "start without a valid configuration, and answer 503 until there is one",
    )
    options.flag(
        "--refuse-loopback", "refuse destinations on this machine, as a deliverer in a pod does"
    )
    options.flag(
        "--allow-link-local", "allow link-local destinations; metadata services stay refused"
    )
    options.value(
        "--max-destinations N",
        "maximum number of destination queues, a limit on memory",
        whole_number(1, LARGEST_DESTINATIONS),
        10_000,
    )
    options.several(
        "--nameserver IP[:PORT]",
        "name server instead of the system's; may be repeated",
        name_server,
    )
    options.several(
        "--plugin NAME=COMMAND",
        "run this command for destinations plugin://NAME, without a shell, or connect to a socket"
        f" (NAME={_SOCKET}/PATH); may be repeated",
        plugin,
    )
    add_gateway_arguments(options)
    add_logging_arguments(options)


def _add_journal(options: Options) -> None:
    options.file(
        "--journal DIR",
        "store accepted indications in this folder until they are delivered; it is created if "
        "its parent exists [in memory]",
    )
    options.value(
        "--session NAME",
        "restore the journal of this name from the stores of its service if the folder is lost; two"
        " deliverers never share one [the folder's own]",
        session_name,
    )


def _add_delivery_folder(options: Options) -> None:
    options.file(
        "--delivery-folder DIR",
        "write the files of destinations with protocol File into this folder, which exists "
        "[such destinations are held]",
    )


def session_name(text: str) -> str:
    """Raises ArgumentTypeError."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: write a name, or leave --session out")
    return text


def address(text: str) -> Address:
    return Address(*host_and_port(text, example="127.0.0.1:8288"))


def name_server(text: str) -> str:
    """Check IP[:PORT], with an IPv6 address in brackets if it has a port. Raises
    ArgumentTypeError."""
    if _is_ip(text) or (text[:1] + text[-1:] == "[]" and _is_ip(text[1:-1])):
        return text
    host, port = host_and_port(text, example="192.0.2.1:53")
    if port == 0 or not _is_ip(host):
        raise argparse.ArgumentTypeError(f"{text!r} is not IP[:PORT]")
    return text


def plugin(text: str) -> tuple[str, PluginEndpoint]:
    """Parse NAME=COMMAND or NAME=unix:/PATH. Raises ArgumentTypeError."""
    name, equals, command = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=COMMAND, such as tickets=/opt/tickets"
        )
    if not _PLUGIN_NAME.fullmatch(name):
        raise argparse.ArgumentTypeError(
            f"{name!r} is not a name: write up to 63 letters, digits, '.', '_' and '-', with a"
            " letter or digit at both ends"
        )
    if command.startswith(_SOCKET):
        return name, PluginEndpoint(socket=_socket_path(name, command.removeprefix(_SOCKET)))
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"the command of {name}: {error}") from None
    if not words or not words[0]:
        raise argparse.ArgumentTypeError(
            f"the command of {name} is empty: write {name}=PROGRAM ARGUMENTS"
        )
    return name, PluginEndpoint(command=words)


def _socket_path(name: str, path: str) -> Path:
    if not path.startswith("/") or len(path.encode()) > _LONGEST_SOCKET_PATH:
        raise argparse.ArgumentTypeError(
            f"the socket of {name} is not an absolute path of at most {_LONGEST_SOCKET_PATH} bytes:"
            f" write {name}={_SOCKET}/PATH"
        )
    return Path(path)


def plugins(args: argparse.Namespace) -> dict[str, PluginEndpoint]:
    """Return the plug-ins by name. Raises CommandError."""
    found: dict[str, PluginEndpoint] = {}
    for name, endpoint in args.plugin:
        if name in found:
            raise _wrong(f"--plugin {name} is given twice: write one command for each name")
        found[name] = endpoint
    return found


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _keep_apart(folders: Mapping[str, Path | None]) -> None:
    """Refuse one folder for two options: the resource folder may be replaced as a whole, and
    destinations name the files of the delivery folder."""
    known: dict[Path, str] = {}
    for option, folder in folders.items():
        if folder is None:
            continue
        other = known.setdefault(folder.resolve(), option)
        if other != option:
            text = f"{option} {folder} is the folder of {other}: name another one"
            raise CommandError(text, code=Exit.USAGE)


def run(args: argparse.Namespace) -> int:
    _keep_apart(
        {
            "--resources": args.resources,
            "--journal": args.journal,
            "--delivery-folder": args.delivery_folder,
        }
    )
    if args.delivery_folder is not None and not args.delivery_folder.is_dir():
        text = f"--delivery-folder {args.delivery_folder}: no such folder: make it, or name another"
        raise CommandError(text, code=Exit.USAGE)
    check_listeners(
        {
            "--intake": args.intake,
            "--telemetry": args.telemetry,
            "--administration": args.administration,
        }
    )
    settings = Settings(
        resources=args.resources,
        journal=args.journal,
        service=args.service,
        intake=args.intake,
        telemetry=args.telemetry,
        administration=args.administration,
        intake_tls=intake_tls(args),
        token_keys=token_keys(args),
        gateway=gateway_access(args),
        operator_token_file=args.operator_token_file,
        operator_console=os.environ.get(OPERATOR_CONSOLE) == "true",
        pod_uid=os.environ.get(POD_UID) or None,
        wait_for_configuration=args.wait_for_configuration,
        addresses=AddressPolicy(
            allow_loopback=not args.refuse_loopback, allow_link_local=args.allow_link_local
        ),
        maximum_destinations=args.max_destinations,
        nameservers=tuple(args.nameserver),
        delivery_folder=args.delivery_folder,
        plugins=plugins(args),
        session=args.session,
    )
    raise_limit()
    if settings.journal is not None:
        sys.setswitchinterval(SWITCH_SECONDS)
    output = start_logging(args)
    try:
        spans = create_spans(SystemClock())
        with short_collections(LONGEST_COLLECTION):
            asyncio.run(_serve(settings, log_records_dropped=lambda: output.dropped, spans=spans))
    except StartFailed as failure:
        print(failure, file=sys.stderr)
        raise CommandError("the deliverer could not start") from failure
    except ExceptionGroup as group:
        failed = first(group, StartFailed) or first(group, PartFailed)
        if failed is None:
            raise first(group, OutputError) or group from None
        raise CommandError(str(failed)) from group
    finally:
        output.close()
    return Exit.OK


async def _serve(
    settings: Settings, *, log_records_dropped: Callable[[], int], spans: "Spans | None"
) -> None:
    stop = asyncio.Event()
    heed_signals(stop)
    deliverer = Deliverer(
        settings,
        log_records_dropped=log_records_dropped,
        loading=gc_disabled,
        spans=spans,
    )
    failure = None
    async with asyncio.TaskGroup() as tasks:
        announcement = tasks.create_task(_announce(deliverer))
        try:
            await deliverer.run(stop)
        except StartFailed as error:
            # Raised below, since here it would become part of an exception group.
            failure = error
        announcement.cancel()
    leave_word(deliverer.left, destinations=deliverer.left_at)
    if failure is not None:
        raise failure


async def _announce(deliverer: Deliverer) -> None:
    await deliverer.started.wait()
    # The present objects stay. Without freeze each full collection would take 15 ms for them.
    gc.collect()
    gc.freeze()
    addresses = {"intake": deliverer.intake_url, "telemetry": deliverer.telemetry_url}
    if deliverer.administration_url != deliverer.intake_url:
        addresses["administration"] = deliverer.administration_url
    print(json.dumps(addresses), flush=True)
