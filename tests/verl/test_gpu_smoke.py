"""The smoke test for GPUs starts what verl accepts; it is run itself by hand
(docs/verl.md)."""

import argparse

import pytest
import yaml

from benchmarks.gpu_smoke import Report, accepted, dry_run, settings
from rpg.backends.verl.overrides import plan
from rpg.config.sweep_spec import load_sweep
from rpg.config.verl_keys import unknown
from tests.verl.test_launch_overrides import PATHS


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 1), ("cuda", 1), ("cuda", 8)])
def test_its_runs_are_runs_that_verl_knows(tmp_path, device, gpus):
    pytest.importorskip("verl")
    from rpg.backends.verl.main import compose

    file = tmp_path / "smoke.yaml"
    file.write_text(yaml.safe_dump(settings(device, gpus, "Qwen/Qwen3-0.6B")))
    (run,) = load_sweep(file, {}, lambda spec: "data").runs
    assert unknown(run.spec.backend.verl) == []
    config = compose(plan(run.spec, PATHS).arguments())
    assert config.trainer.n_gpus_per_node == gpus
    assert config.trainer.device == device


def test_the_command_line_takes_all_that_it_would_run(tmp_path, capsys):
    report = Report()
    dry_run(argparse.Namespace(gpus=1, model="Qwen/Qwen3-0.6B"), tmp_path, report)
    assert report.failed == 0
    assert capsys.readouterr().out.count("$ ") == 3
    assert not accepted("evaluate", "Qwen/Qwen3-0.6B", "--kk", "2", parsed_only=True)
