"""Process groups on a CPU."""

from __future__ import annotations

import functools


def install() -> None:
    """verl asks torch for one backend per device, `cpu:gloo,<device>:<backend>`, and torch refuses the CPU named twice."""
    from verl.utils import distributed

    theirs = distributed.initialize_global_process_group_ray

    @functools.wraps(theirs)
    def with_gloo(timeout_second=None, backend=None):
        return theirs(timeout_second, backend or "gloo")

    distributed.initialize_global_process_group_ray = with_gloo
