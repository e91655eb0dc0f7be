"""The flow of a study, whose sweeps are flows within it. Imported only inside `prefect_api`."""

import os
from collections.abc import Collection

from prefect import flow, tags
from prefect.runtime import flow_run

from flows.prefect.flow_runs import FLOW_RUN, alive, folder_tag
from flows.study.steps import Running, run_steps


# validate_parameters: pydantic would look for a schema of what lives in this process only.
@flow(persist_result=False, validate_parameters=False)
def study(only: Collection[str], running: Running) -> str | None:
    """Tune, register, report: those of them that are named. Returns what failed in a line, or
    None."""
    with alive(running.layout.home, str(flow_run.id), flow_run.run_count):
        return run_steps(only, running)


def run(only: Collection[str], running: Running) -> str | None:
    """Run the flow, or its body where the tasks belong to the flow run of another process."""
    if FLOW_RUN in os.environ:
        return run_steps(only, running)
    with tags(folder_tag(running.layout.home)):
        title = f"study {running.name}: {', '.join(only)}"
        return study.with_options(flow_run_name=title)(only, running)
