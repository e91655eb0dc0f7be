"""`python .ci/sbom.py [FILE]`: what is installed beside this Python, as a CycloneDX list with
licences.

Without FILE it prints the licences as a table instead. Hashes are those of requirements.lock.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "requirements-torch.lock")


def licence(distribution: Distribution) -> str:
    """What a distribution says about its licence: an expression, a name, or its classifiers."""
    about = distribution.metadata
    expression = about.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        line.rpartition("::")[2].strip()
        for line in about.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    name = (about.get("License") or "").strip()
    if name and "\n" not in name and len(name) < 60:  # some put the whole text there
        return name
    return ", ".join(classifiers) or "not said"


def hashes() -> dict[str, list[str]]:
    """`name==version` -> the SHA-256 digests of its files."""
    text = "\n".join((ROOT / lock).read_text("utf-8") for lock in LOCKS)
    entries = re.findall(r"^([\w.-]+==[^\s;]+)(.*(?:\n    .*)*)", text, re.M)
    return {name: re.findall(r"sha256:([0-9a-f]{64})", rest) for name, rest in entries}


def components() -> list[dict[str, Any]]:
    """Each installed distribution."""
    known = hashes()
    found = {}
    for distribution in distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        version = distribution.version
        component: dict[str, Any] = {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "licenses": [{"license": {"name": licence(distribution)}}],
        }
        digests = known.get(f"{name}=={version}", [])
        if digests:
            component["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in digests]
        found[name] = component
    return [found[name] for name in sorted(found)]


def main(words: list[str]) -> None:
    """Write the list to the file, or print the licences."""
    listed = components()
    if words:
        document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": listed}
        Path(words[0]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return
    width = max(len(each["name"]) for each in listed)
    for each in listed:
        print(f"{each['name']:{width}}  {each['licenses'][0]['license']['name']}")


if __name__ == "__main__":
    main(sys.argv[1:])
