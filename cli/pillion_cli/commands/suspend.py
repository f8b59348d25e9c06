"""``pillion suspend``: see :mod:`pillion_cli.suspension`."""

import argparse

from pillion_cli import suspension

HELP = """
Suspend a destination: indications are queued, and none is attempted. The time counts toward neither
attempts nor lifetime; a full queue still discards or refuses.

It changes the file of the deliverer's folder that has the destination: it sets suspended: true in
its spec, leaves all else as it is, and waits until the deliverer has taken it up. If it does not,
the file is changed back. So the resource and the deliverer never contradict each other, and a
restart changes nothing. Run it where the deliverer runs.

If the operator has rendered the folder, the resource is in Kubernetes, and nothing is changed: the
command prints the kubectl command that does it.

examples:
  pillion suspend siem
  pillion suspend siem --resources /etc/pillion
  pillion suspend siem --output json | jq .depth

exit codes: 0 it is suspended, or was before; 1 nothing was changed, such as for a resource in
Kubernetes, or no deliverer; 2 a wrong command line.
"""

add_arguments = suspension.add_arguments


def run(args: argparse.Namespace) -> int:
    return suspension.run(args, wanted=True)
