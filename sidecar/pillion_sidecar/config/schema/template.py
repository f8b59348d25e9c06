"""``IndicationService.spec.deliverer.template``: how a gateway's pods are made and placed."""

from pillion_sidecar.config.schema.fields import (
    Boolean,
    Field,
    JSONObject,
    ListOf,
    MapOf,
    Quantity,
    Rule,
    Struct,
    Text,
)
from pillion_sidecar.config.schema.rules import cel_matches, matching, object_name, unlike, whole
from pillion_sidecar.config.schema.scheduling import (
    AFFINITY,
    NODE_SELECTOR,
    TOLERATION,
    TOPOLOGY_SPREAD,
)
from pillion_sidecar.config.schema.selectors import LABEL_VALUE, label_key_rule

_RESERVED = r"([^/]*\.)?pillion\.dev/.*|app\.kubernetes\.io/managed-by"
_is_reserved = whole(_RESERVED)
_RESERVED_RULE = Rule(
    cel=f"!self.exists(key, {cel_matches('key', _RESERVED)})",
    holds=lambda keys: not any(_is_reserved(key) for key in keys),
    message="holds a key that belongs to Pillion itself",
    remedy="Remove pillion.dev/… and app.kubernetes.io/managed-by; the operator writes them.",
)

_METADATA = Struct(
    fields=(
        Field(
            name="labels",
            type=MapOf(
                value=LABEL_VALUE, max_properties=32, rules=(label_key_rule(), _RESERVED_RULE)
            ),
            description="Labels of the pods, besides the operator's own.",
        ),
        Field(
            name="annotations",
            type=MapOf(
                value=Text(max_length=4096),
                max_properties=32,
                rules=(label_key_rule("annotation"), _RESERVED_RULE),
            ),
            description="Annotations of the pods.",
        ),
    )
)

_SOURCES = ("secret", "configMap", "persistentVolumeClaim", "emptyDir", "csi")


def _one_source(volume: JSONObject) -> bool:
    return sum(source in volume for source in _SOURCES) == 1


def _named_source(name: str, what: str, *flags: tuple[str, str]) -> Struct:
    return Struct(
        fields=(
            Field(name=name, type=object_name(), required=True, description=f"The {what}."),
            *(
                Field(name=flag, type=Boolean(), default=False, description=description)
                for flag, description in flags
            ),
        )
    )


_OPTIONAL = ("optional", "Whether the pod starts without it.")
_READ_ONLY = ("readOnly", "Whether it is mounted read-only.")
_EMPTY_DIR = Struct(
    fields=(
        Field(
            name="sizeLimit",
            type=Quantity(),
            assumed="no limit",
            description="How much it holds at most.",
        ),
    )
)
_CSI = Struct(
    fields=(
        Field(
            name="driver",
            type=object_name(),
            required=True,
            description="The name of the CSI driver.",
        ),
        Field(name=_READ_ONLY[0], type=Boolean(), default=False, description=_READ_ONLY[1]),
        Field(
            name="volumeAttributes",
            type=MapOf(value=Text(max_length=1024), max_properties=16),
            description="Settings for the driver.",
        ),
    )
)

_VOLUME = Struct(
    fields=(
        Field(
            name="name",
            type=Text(
                min_length=1,
                max_length=63,
                rules=(
                    matching(
                        "[a-z0-9]([a-z0-9-]*[a-z0-9])?",
                        message="is not the name of a volume",
                        remedy="Use lower-case letters, digits and '-', "
                        "beginning and ending with a letter or digit.",
                    ),
                    unlike(
                        "pillion-.*",
                        message="begins like the operator's own volumes",
                        remedy="Begin it with another word than pillion-.",
                    ),
                ),
            ),
            required=True,
            description="The name that volumeMounts use.",
        ),
        Field(
            name="secret",
            type=_named_source("secretName", "name of the Secret", _OPTIONAL),
            description="The keys of a Secret as files.",
        ),
        Field(
            name="configMap",
            type=_named_source("name", "name of the ConfigMap", _OPTIONAL),
            description="The keys of a ConfigMap as files.",
        ),
        Field(
            name="persistentVolumeClaim",
            type=_named_source("claimName", "name of the PersistentVolumeClaim", _READ_ONLY),
            description="A claim that is there already. All replicas share it.",
        ),
        Field(name="emptyDir", type=_EMPTY_DIR, description="A new empty folder."),
        Field(name="csi", type=_CSI, description="A volume of a CSI driver."),
    ),
    rules=(
        Rule(
            cel=f"[{', '.join(f'has(self.{source})' for source in _SOURCES)}]"
            ".filter(given, given).size() == 1",
            holds=_one_source,
            message="has no source, or more than one",
            remedy=f"Write exactly one of {', '.join(_SOURCES)}.",
        ),
    ),
)

_OURS = "/etc(/pillion(/.*)?)?|/var(/lib(/pillion(/.*)?)?|/run(/secrets(/pillion(/.*)?)?)?)?"
_PART = r"\.?[A-Za-z0-9_-][A-Za-z0-9._-]*"
_MOUNT = Struct(
    fields=(
        Field(
            name="mountPath",
            type=Text(
                min_length=2,
                max_length=512,
                rules=(
                    matching(
                        f"(/{_PART})+",
                        message="is not an absolute path in its shortest form",
                        remedy="Write it as /folder/folder, with letters, digits, '.', '_', '-'.",
                    ),
                    unlike(
                        _OURS,
                        message="would hide a folder that the deliverer needs",
                        remedy="Mount it elsewhere, such as below /mnt.",
                    ),
                ),
            ),
            required=True,
            description="The path in the deliverer's container.",
        ),
        Field(
            name="name",
            type=Text(min_length=1, max_length=63),
            required=True,
            description="The name of one of volumes.",
        ),
        Field(
            name="subPath",
            type=Text(
                min_length=1,
                max_length=512,
                rules=(
                    matching(
                        f"{_PART}(/{_PART})*",
                        message="is not a relative path in its shortest form",
                        remedy="Write it as folder/file, with letters, digits, '.', '_', '-'.",
                    ),
                ),
            ),
            assumed="the whole volume",
            description="The path inside the volume.",
        ),
        Field(name="readOnly", type=Boolean(), default=True, description="Mount it read-only."),
    )
)


def _mounts_are_volumes(template: JSONObject) -> bool:
    names = {volume["name"] for volume in template.get("volumes", ())}
    return all(mount["name"] in names for mount in template.get("volumeMounts", ()))


_PULL_SECRET = Struct(
    fields=(
        Field(
            name="name",
            type=object_name(),
            required=True,
            description="The name of a Secret in the same namespace.",
        ),
    )
)

TEMPLATE = Field(
    name="template",
    type=Struct(
        fields=(
            Field(name="metadata", type=_METADATA, description="Labels and annotations of pods."),
            Field(
                name="nodeSelector",
                type=NODE_SELECTOR,
                description="Labels that a node needs to run the pods.",
            ),
            Field(
                name="tolerations",
                type=ListOf(item=TOLERATION, max_items=32, atomic=True),
                description="The taints of nodes that the pods tolerate.",
            ),
            Field(
                name="affinity",
                type=AFFINITY,
                assumed="replicas avoid each other's nodes where they can",
                description="Which nodes and which neighbours the pods want or avoid.",
            ),
            Field(
                name="topologySpreadConstraints",
                type=ListOf(item=TOPOLOGY_SPREAD, max_items=8, atomic=True),
                assumed="replicas are spread over zones and over nodes as far as possible",
                description="How the replicas are spread.",
            ),
            Field(
                name="priorityClassName",
                type=object_name(),
                description="The PriorityClass of the pods.",
            ),
            Field(
                name="imagePullSecrets",
                type=ListOf(item=_PULL_SECRET, max_items=8, key="name"),
                assumed="those that the operator was installed with",
                description="The Secrets with which the pods' images are pulled.",
            ),
            Field(
                name="volumes",
                type=ListOf(item=_VOLUME, max_items=16, key="name"),
                description="More volumes of the pods.",
            ),
            Field(
                name="volumeMounts",
                type=ListOf(item=_MOUNT, max_items=16, key="mountPath"),
                description="Where the deliverer's container finds these volumes.",
            ),
        ),
        rules=(
            Rule(
                cel="!has(self.volumeMounts) || self.volumeMounts.all(mount, has(self.volumes) && "
                "self.volumes.exists(volume, volume.name == mount.name))",
                holds=_mounts_are_volumes,
                field="volumeMounts",
                message="names a volume that volumes does not have",
                remedy="Add the volume to volumes, or correct the name.",
            ),
        ),
    ),
    description="How the pods of a gateway are made and placed. A change restarts them one by one. "
    "Only with mode Gateway; an injected sidecar is placed with its pod.",
)
