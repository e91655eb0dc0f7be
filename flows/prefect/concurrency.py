"""The slots of this machine as global concurrency limits of Prefect, for people who look at its page *Concurrency*.

The kernel's locks decide who trains (flows.machine.slots). What is written here is read by nobody but people.
"""

from __future__ import annotations

from flows.machine.slots import Machine

NAMES = {"cpu": "training slots cpu", "gpu": "training slots gpu"}


def mirror(machine: Machine) -> None:
    """Write how many slots there are and how many are taken now, where that differs from what Prefect shows.

    Of the API in the settings.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client:
        for kind, name in NAMES.items():
            limit, taken = len(machine.names(kind)), len(machine.taken(kind))
            if not limit:
                continue
            try:
                shown = client.read_global_concurrency_limit_by_name(name)
            except ObjectNotFound:
                client.create_global_concurrency_limit(
                    GlobalConcurrencyLimitCreate(name=name, limit=limit, active_slots=taken)
                )
                continue
            if (shown.limit, shown.active_slots, shown.active) != (limit, taken, True):
                client.update_global_concurrency_limit(
                    name, GlobalConcurrencyLimitUpdate(limit=limit, active_slots=taken, active=True)
                )
