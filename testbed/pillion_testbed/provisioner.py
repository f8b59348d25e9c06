"""Makes the volumes that pods claim: folders of this machine, which all nodes are on.

``python -m pillion_testbed.provisioner KUBECONFIG FOLDER``, a process of a cluster with nodes. What
the controller manager itself makes (``--enable-hostpath-provisioner``) only root can write to, and
a pod under the restricted Pod Security never is root.
"""

import http.client
import json
import shutil
import sys
import threading
import urllib.parse
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from pillion_testbed.node_files import PROVISIONER, Object
from pillion_testbed.rest import Refused, Rest

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
#: Seconds until the API server is asked again after it was away.
PAUSE = 0.5


def wanted(claim: Object) -> bool:
    """Whether a claim waits for a volume of ours: the scheduler has chosen its node."""
    notes = claim["metadata"].get("annotations", {})
    return (
        notes.get(STORAGE_PROVISIONER) == PROVISIONER
        and SELECTED_NODE in notes
        and not claim["spec"].get("volumeName")
        and "deletionTimestamp" not in claim["metadata"]
    )


def released(volume: Object) -> bool:
    """Whether a volume is ours and nobody's any more."""
    notes = volume["metadata"].get("annotations", {})
    return (
        notes.get(PROVISIONED_BY) == PROVISIONER
        and volume.get("status", {}).get("phase") == "Released"
        and volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        and "deletionTimestamp" not in volume["metadata"]
    )


def volume_for(claim: Object, folder: Path) -> Object:
    """Return the volume that a claim gets. Its size is only said: nothing limits it."""
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    node = meta["annotations"][SELECTED_NODE]
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec["storageClassName"],
            "volumeMode": "Filesystem",
            # Of this kind, unlike of hostPath, a pod's fsGroup becomes the owner.
            "local": {"path": str(folder / name)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                **{key: meta[key] for key in ("namespace", "name", "uid")},
            },
        },
    }


class Provisioner:
    """Serves one cluster; ``provide`` and ``reclaim`` run until the process ends."""

    def __init__(self, rest: Rest, folder: Path) -> None:
        self._rest = rest
        self._folder = folder
        self._pause = threading.Event()
        #: What is done already: a watch tells of it again before the cluster has noticed.
        self._done: set[str] = set()

    def provide(self) -> None:
        """Make volumes for claims."""
        self._forever(CLAIMS, wanted, self._make)

    def reclaim(self) -> None:
        """Remove volumes whose claims were deleted."""
        self._forever(VOLUMES, released, self._remove)

    def _forever(
        self, path: str, condition: Callable[[Object], bool], act: Callable[[Object], None]
    ) -> None:
        def due(found: Any) -> bool:
            return found["metadata"]["uid"] not in self._done and condition(found)

        while True:
            try:
                found = self._rest.until(path, due)
                act(found)
                self._done.add(found["metadata"]["uid"])
            except TimeoutError:
                continue
            except (OSError, http.client.HTTPException, Refused) as error:
                print(f"{path}: {error}", flush=True)
                self._pause.wait(PAUSE)

    def _make(self, claim: Object) -> None:
        volume = volume_for(claim, self._folder)
        place = Path(volume["spec"]["local"]["path"])
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777)
        try:
            self._rest.request("POST", VOLUMES, volume)
        except Refused as error:
            if error.status != http.client.CONFLICT:
                raise
        print(f"made {place}", flush=True)

    def _remove(self, volume: Object) -> None:
        place = Path(volume["spec"]["local"]["path"])
        if place.exists():
            shutil.rmtree(place)
        self._rest.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")
        print(f"removed {place}", flush=True)


def rest_of(kubeconfig: Path) -> Rest:
    """Return the API server of a kubeconfig of ``pillion_testbed.users``."""
    content = json.loads(kubeconfig.read_text())
    server = content["clusters"][0]["cluster"]
    url = urllib.parse.urlsplit(server["server"])
    assert url.hostname is not None
    assert url.port is not None
    token = content["users"][0]["user"]["token"]
    return Rest(url.port, ca=Path(server["certificate-authority"]), token=token, host=url.hostname)


def main(kubeconfig: Path, folder: Path) -> None:
    made = Provisioner(rest_of(kubeconfig), folder)
    threads = ThreadPoolExecutor(2)
    ended, _going_on = wait(
        [threads.submit(work) for work in (made.provide, made.reclaim)],
        return_when=FIRST_COMPLETED,
    )
    for one in ended:
        # Neither ends but by an error, with which this process must not go on by half.
        sys.excepthook(type(one.exception()), one.exception(), None)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
