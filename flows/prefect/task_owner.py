"""The flow run to which the tasks of a sweep belong, as Prefect's pages show it. Imported only inside `prefect_api`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.context import hydrated_context
from prefect.logging.handlers import APILogHandler
from prefect.results import get_result_store
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from flows.prefect import artifacts
from flows.prefect.flow_runs import FLOW_RUN, alive
from flows.prefect.reconcile import cancelled, tasks_cancelled
from rpg.errors import UserError
from rpg.store import Layout


class TaskOwner:
    """A flow run of this command's own; or that of the process which started this command, and waits for it."""

    def __init__(self, layout: Layout, sweep: str) -> None:
        self._layout, self._sweep = layout, sweep
        adopted = os.environ.get(FLOW_RUN)
        self.adopted = adopted is not None
        self.id = UUID(adopted) if adopted else None
        self._log: logging.Logger | None = None

    def log(self, line: str) -> None:
        """A line for the log of a flow run of our own; a command that another one started prints its lines instead."""
        if self._log:
            self._log.info(line, extra={"flow_run_id": str(self.id)})

    def stopped(self) -> None:
        """Say that the sweep was stopped on purpose. An adopted flow run's state is its own process's matter."""
        if self.id:
            (tasks_cancelled if self.adopted else cancelled)(self.id, "stopped on purpose")

    @contextmanager
    def adopt(self, flow: Flow[..., Any]) -> Iterator[None]:
        """Tasks that are called inside are tasks of the adopted flow run."""
        with get_client(sync_client=True) as client:
            assert self.id is not None
            flow_run_context = {
                "flow": flow,
                "flow_run": client.read_flow_run(self.id),
                "parameters": {},
                "persist_result": False,
                "result_store": get_result_store().update_for_flow(flow, _sync=True),
            }
            with hydrated_context({"flow_run_context": flow_run_context}, client):
                self._link()
                yield

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within the flow: what Prefect shows of a flow run of our own besides its states."""
        if self.adopted:
            yield
            return
        self.id = UUID(str(flow_run.id))
        # To the flow run's log at the API, and nowhere else: the terminal shows the progress.
        self._log = logging.Logger("rpg.sweep", logging.INFO)
        self._log.addHandler(APILogHandler())
        artifacts.link(self._sweep)
        try:
            with alive(self._layout.home, str(self.id), flow_run.run_count):
                self._link()
                yield
        except UserError:
            artifacts.report(self._layout, self._sweep)
            raise
        artifacts.report(self._layout, self._sweep)

    def _link(self) -> None:
        """For the dashboard's link; a private server has no page to link to."""
        self._layout.write_flow_run(self._sweep, url_for("flow-run", obj_id=self.id))
