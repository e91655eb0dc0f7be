"""The way of a sweep through the code, from the command to the report, is short and leads one way.

The walk is every call between two modules above the store that hands on the planned sweep as a
whole (the Sweep, all of its specs, or the Context of its flow), or returns it, until the report is
written. What gets a part only (one run's spec, a name, a log) is a helper beside the way. The calls
are traced on all threads of the conductor while a real sweep goes on.
"""

import json
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.trivial import SWEEP
from tests.real_sweep import rpg
from tests.rooms import ROOMS, room_of

MODULES = 8
NAMES = [room.name for room in ROOMS]
ABOVE = set(NAMES[NAMES.index("rpg.store") + 1 :])
END = ("rpg.report.upkeep", "write")


def ours(frame):
    """The module of ours that a frame belongs to; generated code (of a dataclass) is nobody's."""
    name = frame.f_globals.get("__name__", "")
    made = frame.f_code.co_filename.startswith("<")
    return name if name.startswith(("rpg.", "flows.")) and not made else ""


class Tracer:
    """Collects (calling module, called module)."""

    def __init__(self, types):
        self.calls = set()
        self.over = False
        self._types = types

    def is_sweep(self, value):
        sweep, context, spec = self._types
        return isinstance(value, (sweep, context)) or (
            isinstance(value, (list, tuple))
            and bool(value)
            and all(isinstance(one, spec) for one in value)
        )

    def __call__(self, frame, event, returned):
        module = ours(frame)
        if (
            self.over
            or event not in ("call", "return")
            or not module
            or room_of(module).name not in ABOVE
        ):
            return
        code = frame.f_code
        values = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
        arrived = (module, code.co_name) == END and event == "call"
        if not arrived and not any(map(self.is_sweep, [returned] if event == "return" else values)):
            return
        caller = frame.f_back
        while caller is not None and not ours(caller):
            caller = caller.f_back
        if caller is not None and ours(caller) != module:
            self.calls.add((ours(caller), module))
        self.over = arrived


@pytest.mark.system
def test_the_way_of_a_sweep_enters_few_modules_and_each_from_one(tmp_path, prefect):
    (tmp_path / "s.yaml").write_text(SWEEP.format(name="walked", steps=4, every=2, seeds=[0, 1]))
    out = tmp_path / "walk.json"
    sweep = rpg(tmp_path, str(out), "sweep", "s.yaml", module="tests.flows.test_walk", **prefect)
    assert sweep.returncode == 0 and "Accuracy" in sweep.stdout, sweep.stdout + sweep.stderr
    calls = json.loads(out.read_text())
    entered = [called for _, called in calls]
    assert len(entered) == len(set(entered)), f"entered from two modules: {calls}"
    modules = {module for call in calls for module in call}
    [start] = modules - set(entered)
    assert start == "rpg.cli.execution", (
        "and every other module is entered from one that the way has reached"
    )
    assert modules >= {"flows.sweep.flow", "flows.sweep.training", "flows.sweep.evaluation", END[0]}
    assert len(modules) <= MODULES, sorted(modules)


if __name__ == "__main__":
    from benchmarks.trivial.__main__ import install
    from flows.sweep.context import Context
    from rpg.cli import main
    from rpg.config.run_spec import RunSpec
    from rpg.config.sweep_spec import Sweep

    install()
    tracer = Tracer((Sweep, Context, RunSpec))
    out = Path(sys.argv.pop(1))
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        main()
    finally:
        sys.setprofile(None)
        out.write_text(json.dumps(sorted(tracer.calls)))
