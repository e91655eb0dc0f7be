"""The run files of docs/other-trainers.md train and are evaluated, as `rpg train` does it."""

import pytest

from flows.sweep.conductor import register
from rpg.backends.local.training_loop import train
from rpg.config.sweep_spec import single_run
from rpg.evaluation.evaluator import Evaluator
from rpg.store import Layout
from rpg.store.run_folder import pending_evaluations
from rpg.store.samples import read_eval
from rpg.tasks.preparation import data_digest
from tests.docs.pages import ROOT, blocks


@pytest.mark.parametrize("file", ["letters.yaml", "gsm8k-cpu.yaml"])
def test_a_file_for_those_who_come_from_another_trainer_trains(tmp_path, file):
    for block in blocks(ROOT / "docs" / "other-trainers.md"):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    sweep = single_run(tmp_path / file, {}, data_digest)
    layout = Layout.at(tmp_path / "data")
    (folder,) = register(sweep, layout)
    train(folder, layout.home, lambda line: None)
    rows = folder.read_metrics()
    assert [row["step"] for row in rows] == [1, 2]
    Evaluator(layout, folder.sweep, lambda line: None).until(lambda: True)
    assert pending_evaluations(folder) == []
    (benchmark,) = folder.benchmarks()
    samples = read_eval(folder, benchmark, 2).to_pylist()
    if file == "letters.yaml":
        assert rows[0]["reward"] == pytest.approx(rows[0]["reward_reward_num_unique_letters"])
        assert all(row["reward"] == len(set(row["response"])) for row in samples)
        assert all(row["correct"] == (row["reward"] >= 5) for row in samples)
    else:
        assert samples[0]["answer"] == "2"
        assert 0 <= rows[0]["reward"] <= 1
