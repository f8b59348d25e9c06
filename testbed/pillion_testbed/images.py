"""The images of the tests, built from the project's own Dockerfiles on a local base.

``python -m pillion_testbed.images [NAME…]`` builds the missing ones and prints where they are.

Each is named after a digest of all that goes into it, so an unchanged one is there at once and a
changed one never hides behind an old name. What is built is kept outside the checkout.
"""

import fcntl
import os
import sys
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pillion_testbed import image_archive
from pillion_testbed.binaries import Say, cache_folder, say
from pillion_testbed.image_base import DOCKERFILE, ImagesUnavailable, base_key, make_base, run
from pillion_testbed.image_recipes import (
    DELIVERER,
    PYWBEM_LISTENER,
    RECIPES,
    SPARK,
    WEATHER,
    Recipe,
    digest,
)
from pillion_testbed.package_index import secrets

ROOT = Path(__file__).parents[2]
#: Archives of one image that are kept: they are large.
KEPT = 3
#: Intermediate images after which buildah's store is begun anew, for it never forgets one.
STORE_LIMIT = 600
#: Builds after which sources that change meanwhile are given up.
TRIES = 5
#: When an image was made and of which commit does not belong to its identity; and buildah takes a
#: label from its cache though the argument in it has another value.
CREATED = "1970-01-01T00:00:00Z"
REVISION = "of-a-working-tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image: its name with tag, and an uncompressed archive of the OCI's layout."""

    name: str
    archive: Path

    @property
    def repository(self) -> str:
        """The name without tag, as the chart wants it."""
        return self.name.partition(":")[0]

    @property
    def tag(self) -> str:
        return self.name.partition(":")[2]

    def contents(self) -> image_archive.Contents:
        """Its configuration and the digests and sizes of its layers, the base's first."""
        return image_archive.contents(self.archive)

    def thin_archive(self, into: Path, *, having: Container[str]) -> Path:
        """Write an archive without the layers that containerd has (``ctr content list -q``)."""
        image_archive.thin(self.archive, into=into, having=having)
        return into


def deliverer(*, say: Say = say) -> Image:
    """Deliverer, operator and command line."""
    return Images(say=say).image(DELIVERER)


def first_release(tree: Path, *, say: Say = say) -> Image:
    """Deliverer, operator and command line of an earlier version, of which this is the tree."""
    recipe = replace(DELIVERER, repository="localhost/pillion-first-release")
    return Images(say=say, root=tree).image(recipe)


def spark(*, say: Say = say) -> Image:
    """Spark with the data source."""
    return Images(say=say).image(SPARK)


def pywbem_listener(*, say: Say = say) -> Image:
    """pywbem's own listener, and what arrived as JSON over HTTP."""
    return Images(say=say).image(PYWBEM_LISTENER)


def weather(*, say: Say = say) -> Image:
    """Spark with the jobs of ``examples/spark-on-kubernetes`` and a year's weather."""
    return Images(say=say).image(WEATHER)


class Images:
    """Builds images, and keeps them in a folder of this user."""

    def __init__(
        self, *, say: Say = say, environment: Mapping[str, str] = os.environ, root: Path = ROOT
    ) -> None:
        """``root`` is the tree that images are made of."""
        self._environment = environment
        self._root = root
        self._folder = cache_folder(environment).parent / "images"
        self._say = say

    def image(self, recipe: Recipe) -> Image:
        """The image, built unless it is there.

        Raises :class:`pillion_testbed.image_base.ImagesUnavailable` where it cannot be built here.
        """
        for _ in range(TRIES):
            found = self._named(recipe)
            if not found.archive.exists():
                self._folder.mkdir(parents=True, exist_ok=True)
                with _locked(self._folder / "lock"):
                    self._make(recipe, found)
            # Somebody may have edited what was being copied.
            if found == self._named(recipe):
                os.utime(found.archive)
                return found
            found.archive.unlink(missing_ok=True)
        raise ImagesUnavailable(f"{recipe.dockerfile}: its sources change faster than it is built")

    def _named(self, recipe: Recipe) -> Image:
        name = f"{recipe.repository}:{digest(recipe, root=self._root)}"
        archive = self._folder / f"{name.rpartition('/')[2].replace(':', '-')}.tar"
        return Image(name=name, archive=archive)

    def _make(self, recipe: Recipe, image: Image) -> None:
        # Another process may have made it while this one waited for the lock.
        if not image.archive.exists():
            self._bound_store()
            self._build(recipe, image.name)
            self._export(image.name, image.archive)
            self._forget_old(recipe)

    def _build(self, recipe: Recipe, name: str) -> None:
        arguments = {"BASE": self._base(), "CREATED": CREATED, "REVISION": REVISION}
        if recipe.on is not None:
            argument, other = recipe.on
            arguments[argument] = f"{other.repository}:{digest(other, root=self._root)}"
            if not self._stored(arguments[argument]):
                self._build(other, arguments[argument])
        self._say(f"building {name} from {recipe.dockerfile}")
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            given = secrets(Path(work), self._environment)
            self._buildah(
                *("bud", "--isolation", "chroot", "--layers", "--timestamp", "0"),
                *_options("--build-arg", (f"{key}={text}" for key, text in arguments.items())),
                *_options("--secret", (f"id={key},src={path}" for key, path in given.items())),
                *("--ignorefile", recipe.ignorefile, "--file", recipe.dockerfile),
                *("--tag", name, "."),
            )

    def _export(self, name: str, archive: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            docker, oci = Path(work) / "docker.tar", Path(work) / "oci.tar"
            self._buildah("push", "--quiet", name, f"docker-archive:{docker}:{name}")
            image_archive.repack(docker, into=oci, name=name)
            oci.rename(archive)

    def _base(self) -> str:
        name = f"localhost/pillion-base:{base_key()}"
        if not self._stored(name):
            tar = make_base(self._folder, say=self._say)
            with tempfile.TemporaryDirectory(dir=self._folder) as work:
                dockerfile = Path(work) / "Dockerfile"
                dockerfile.write_text(DOCKERFILE.format(tar=tar.name))
                context = str(tar.parent)
                # Files keep their times: byte code that Debian made is bound to them.
                self._buildah("bud", "-f", str(dockerfile), "-t", name, context)
        return name

    def _stored(self, name: str) -> bool:
        return bool(self._buildah("images", "--quiet", "--filter", f"reference={name}").strip())

    def _buildah(self, *arguments: str) -> str:
        store = self._folder / "store"
        folders = ("--root", str(store / "root"), "--runroot", str(store / "run"))
        command = ["buildah", *folders, "--storage-driver", "overlay", *arguments]
        return run(command, cwd=self._root)

    def _bound_store(self) -> None:
        if len(self._buildah("images", "--all", "--quiet").split()) > STORE_LIMIT:
            self._say("emptying the store of images, which has grown large")
            self._buildah("rmi", "--all", "--force")

    def _forget_old(self, recipe: Recipe) -> None:
        kind = recipe.repository.rpartition("/")[2]
        # The tag is hexadecimal: no other image's archives begin with this one's name and a tag.
        archives = self._folder.glob(f"{kind}-{'[0-9a-f]' * 16}.tar")
        newest = sorted(archives, key=lambda path: path.stat().st_mtime, reverse=True)
        for path in newest[KEPT:]:
            path.unlink()


def _options(option: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (option, value)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(names: list[str]) -> int:
    """Build images by name, or all of them."""
    if unknown := set(names) - set(RECIPES):
        say(f"no image {', '.join(sorted(unknown))}: there are {', '.join(RECIPES)}")
        return 2
    try:
        for name in names or RECIPES:
            image = Images().image(RECIPES[name])
            print(f"{image.name} {image.archive}", flush=True)
    except ImagesUnavailable as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
