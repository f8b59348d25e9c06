"""``pillion resume``: see :mod:`pillion_cli.suspension`."""

import argparse

from pillion_cli import suspension

HELP = """
Resume a suspended destination: what is queued is attempted at once, in order. `pillion test` shows
before whether the listener is well.

It changes the file of the deliverer's folder that has the destination: it sets suspended: false in
its spec, leaves all else as it is, and waits until the deliverer has taken it up. If it does not,
the file is changed back. So the resource and the deliverer never contradict each other, and a
restart changes nothing. Run it where the deliverer runs.

If the operator has rendered the folder, the resource is in Kubernetes, and nothing is changed: the
command prints the kubectl command that does it.

examples:
  pillion resume siem
  pillion resume siem --resources /etc/pillion
  pillion resume siem --output json | jq .depth

exit codes: 0 it is resumed, or was before; 1 nothing was changed, such as for a resource in
Kubernetes, or no deliverer; 2 a wrong command line.
"""

add_arguments = suspension.add_arguments


def run(args: argparse.Namespace) -> int:
    return suspension.run(args, wanted=False)
