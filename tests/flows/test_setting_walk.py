"""A setting's way from the YAML file to the loss is short, and CONTRIBUTING tells it.

One run is planned, written down and trained for a step, with a beta that nothing else has. A module
is on the way if it *carries* beta: a function of it hands beta to a function of another module of
ours, as a number, a mapping or an Algorithm, or returns something new that holds beta (a mapping,
an Algorithm, the run or the sweep). Handing on the whole run (RunSpec, PlannedRun, Sweep, a folder)
is no step of one setting's way; neither is a check, which returns what it was given or nothing, nor
asking an Algorithm about itself, nor an object's call of its own base class. The calls are traced
until the loss has its algorithm.
"""

import re
import sys
import threading
from collections.abc import Mapping

import pytest

from flows.sweep.conductor import register
from rpg.backends.local.training_loop import train
from rpg.catalogue import Algorithm
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_file import SweepSpec
from rpg.config.sweep_spec import PlannedRun, Sweep, load_sweep
from rpg.store.layout import Layout
from rpg.tasks.preparation import data_digest
from tests.docs.test_contributing import PLACE, WALKS
from tests.flows.test_walk import ours

MODULES = 8
BETA = 0.012345
END = ("rpg.losses.surrogates", "token_loss")
BESIDE = {
    # These turn text into plain values, or plain values into text, whatever they say.
    "rpg.config.yaml_lines",
    "rpg.store.atomic_files",
    "rpg.store.run_folder",
    "rpg.store.run_writer",
    # The run's name is a digest of its settings: nothing comes back from there.
    "rpg.config.identity",
}
BASE = """\
task: {type: chain, tiers: {easy: 2}, train_problems: 100, benchmark_problems: 4}
model: {type: tiny, warm_start: null}
training: {steps: 1, prompts_per_step: 2, mini_batch_prompts: 2}
rollout: {group_size: 2, max_response_tokens: 8}
evaluation: {every: 1, samples_per_problem: 1}
"""
SWEEP = f"""\
name: walked
base: base.yaml
axes:
  algorithm: [{{name: rpg-urkl, dynamic_sampling: false}}]
  algorithm.beta: [{BETA}]
"""


def opened(value, depth=0):
    """Whether a value is beta, or holds it with parts of a run only."""
    if isinstance(value, Algorithm):
        return value.beta == BETA
    if isinstance(value, Mapping) and depth < 6:
        return any(opened(inner, depth + 1) for inner in value.values())
    if isinstance(value, list | tuple) and depth < 6:
        return any(opened(inner, depth + 1) for inner in value)
    return isinstance(value, float) and value == BETA


def holds(value):
    """Whether a value holds beta at all, the whole run too."""
    if isinstance(value, Sweep):
        return any(holds(run) for run in value.runs)
    if isinstance(value, PlannedRun):
        return holds(value.spec)
    if isinstance(value, RunSpec):
        return holds(value.algorithm)
    return opened(value.axes if isinstance(value, SweepSpec) else value)


class Tracer:
    """Collects the modules that carry beta, in the order of the way."""

    def __init__(self):
        self.carriers = {}
        self._over = False

    def __call__(self, frame, event, returned):
        if self._over or event not in ("call", "return"):
            return
        module = ours(frame)
        if not module:
            return
        around = frame.f_back
        while around is not None and not ours(around):
            around = around.f_back
        if around is None or ours(around) == module:
            return
        caller = ours(around)
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount
        starred = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
        names = code.co_varnames[: count + starred]
        arguments = [frame.f_locals[name] for name in names if name in frame.f_locals]
        if names[:1] == ("self",):
            arguments = [] if arguments[0] is around.f_locals.get("self") else arguments[1:]
        if event == "call" and any(map(opened, arguments)):
            self.carriers.setdefault(caller)
            self._over = (module, code.co_name) == END
            if self._over:
                self.carriers.setdefault(module)
        is_new = all(returned is not argument for argument in arguments)
        if event == "return" and is_new and holds(returned):
            self.carriers.setdefault(module)


def traced(work):
    """The modules that carry beta while `work` runs, on any thread."""
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert tracer._over, "the loss was not reached"
    return list(tracer.carriers)


@pytest.mark.system
def test_a_setting_passes_few_modules_and_contributing_names_them(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    layout = Layout(tmp_path / "data")

    def plan_and_train():
        sweep = load_sweep(tmp_path / "sweep.yaml", {}, data_digest)
        [folder] = register(sweep, layout)
        train(folder, layout.home, lambda line: None)

    carriers = traced(plan_and_train)

    walk = [module for module in carriers if module not in BESIDE]
    assert len(walk) <= MODULES, walk
    told = re.sub(r"\s+", " ", next(text for title, text in WALKS.items() if "beta" in title))
    named = {path.removesuffix(".py").replace("/", ".") for path, _ in PLACE.findall(told)}
    assert named == set(walk), "CONTRIBUTING tells the way"


def test_the_way_ends_at_the_place_that_contributing_names_last():
    told = next(text for title, text in WALKS.items() if "beta" in title)
    path, name = PLACE.findall(told)[-1]
    assert (path.removesuffix(".py").replace("/", "."), name) == END
