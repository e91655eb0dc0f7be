"""`python -m flows.worker CRON`: create the deployments and run what is started, until the parent dies.

Every flow run is a process of its own, a child of this one, and ends with it.
"""

from __future__ import annotations

import sys

from rpg.guard import die_with_parent

AT_ONCE = 8
"""Flow runs at a time. How many trainings go on at a time is a matter of slots (flows.slots)."""
TAG = "rpg-lab"


def main(cron: str) -> None:
    die_with_parent()
    from prefect import serve

    from flows.deployed import DEPLOYED

    made = [
        one.to_deployment(one.name, cron=cron if cron and one.name == "nightly" else None, tags=[TAG])
        for one in DEPLOYED
    ]
    serve(*made, limit=AT_ONCE, pause_on_shutdown=False, print_starting_message=False)


if __name__ == "__main__":
    main(sys.argv[1])
