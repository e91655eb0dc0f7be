"""`python .ci/verl_main.py [VERL] [VLLM]`: whether verl's main branch and the newest vLLM can be
installed together, by their metadata.

Prints the versions that are decisive, or the resolver's reason. Ends with code 1 where they cannot:
weekly, until constraints-gpu.txt can have a second set. VERL is what a requirement may name
(default: the branch on GitHub), VLLM a bound such as `vllm>=0.33`. Needs uv; downloads metadata.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERL = "verl @ git+https://github.com/verl-project/verl"
VLLM = "vllm>=0.33"
"""An older one resolves beside verl, and says nothing of today's."""
DECISIVE = re.compile(r"^(?:ray|torch|transformers|verl|vllm)(?:==| @ ).*", re.M)


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 if they can be installed together."""
    asked = arguments + [VERL, VLLM][len(arguments) :]
    install = runpy.run_path(str(ROOT / ".ci" / "install.py"))
    uv = install["find_uv"]()
    if uv is None:
        print("uv is needed: pip install uv", file=sys.stderr)
        return 2
    command = [uv, "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate"]
    command += ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_35"]
    requirements = "\n".join(asked) + "\n"
    # Not in the folder of a project, whose own overrides uv would apply.
    done = subprocess.run(command, input=requirements, text=True, capture_output=True, cwd="/")
    if done.returncode != 0:
        print(f"not together: {', '.join(asked)}\n{done.stderr}")
        return 1
    print(f"together: {', '.join(asked)}", *DECISIVE.findall(done.stdout), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
