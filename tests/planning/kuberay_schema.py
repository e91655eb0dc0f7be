"""The part of KubeRay's published schema of a RayJob that our manifests use: `python -m
tests.planning.kuberay_schema CRD`.

CRD is helm-chart/kuberay-operator/crds/ray.io_rayjobs.yaml of github.com/ray-project/kuberay. What
is kept of it stands in kuberay_schema.json: the fields of a manifest with what they require; a
field that is not there is not accepted.
"""

import json
import sys
from functools import reduce
from pathlib import Path

import yaml

SCHEMA = Path(__file__).with_suffix(".json")
KEPT = (
    "type required enum pattern anyOf x-kubernetes-int-or-string maximum minimum "
    "additionalProperties"
).split()


def pruned(schema, value):
    """The schema without what `value` does not have."""
    out = {name: schema[name] for name in KEPT if name in schema}
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        known = {name: inner for name, inner in value.items() if name in fields}
        out["properties"] = {name: pruned(fields[name], inner) for name, inner in known.items()}
        out["additionalProperties"] = False
    if isinstance(value, list) and value:
        merged = {
            name: inner for item in value if isinstance(item, dict) for name, inner in item.items()
        }
        out["items"] = pruned(schema["items"], merged or value[0])
    return out


def both(one, other):
    """The union of two schemas."""
    shared = [k for k, v in other.items() if isinstance(v, dict) and isinstance(one.get(k), dict)]
    return {**one, **other, **{k: both(one[k], other[k]) for k in shared}}


if __name__ == "__main__":
    from tests.planning.test_manifests import jobs

    versions = yaml.load(Path(sys.argv[1]).read_text(), yaml.CSafeLoader)["spec"]["versions"]
    [schema] = [
        version["schema"]["openAPIV3Schema"] for version in versions if version["name"] == "v1"
    ]
    SCHEMA.write_text(
        json.dumps(reduce(both, (pruned(schema, value) for value in jobs())), indent=1) + "\n"
    )
