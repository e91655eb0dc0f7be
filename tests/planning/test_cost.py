"""What a step took is known of runs that are older than some of the fields."""

from types import SimpleNamespace

from rpg.config.run_spec import RunSpec
from rpg.planning.cost import design, known_spreads, measured, seconds_per_step, size
from rpg.planning.gpu_estimate import Assumptions, problems_of


def finished(spec, seconds):
    manifest = {"spec": spec, "steps": 10}
    return SimpleNamespace(
        manifest_path="manifest.json",
        read_done=lambda: {"seconds": seconds},
        read_manifest=lambda: manifest,
    )


def test_runs_that_are_older_than_a_field_tell_their_time():
    spec = RunSpec().model_dump(mode="json")
    older = spec | {
        "model": {name: value for name, value in spec["model"].items() if name != "lora"}
    }
    other = spec | {"rollout": spec["rollout"] | {"group_size": 4}}
    broken = {"spec": 1}
    runs = [
        finished(older, 20.0),
        finished(spec, 40.0),
        finished(other, 90.0),
        finished(broken, 1.0),
    ]
    layout = SimpleNamespace(sweeps=lambda: ["demo"], run_folders=lambda sweep: runs)
    assert older != spec
    assert seconds_per_step(measured(layout), RunSpec()) == (3.0, 2)


def test_spreads_are_those_of_the_last_look_that_has_any():
    looks = [{"benchmarks": ["b"], "spreads": spreads} for spreads in ([1, 2, 3], [0, 0, 0], None)]
    layout = SimpleNamespace(sweeps=lambda: ["s"], read_looks=lambda name: looks)
    assert known_spreads(layout, ("b",)) == (1, 2, 3)
    assert known_spreads(layout, ("c",)) is None


def test_a_benchmark_has_no_more_problems_than_its_limit_and_one_greedy_answer_to_each(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1", "answer": "1"}\n' * 50)
    file = str(tmp_path / "rows.jsonl")
    sources = {"few": {"path": file, "limit": 7}, "all": file, "hub": {"hub": "a/b", "limit": 3}}
    task = {"type": "file", "train": file, "benchmarks": sources}
    for temperature, samples in ((1, 8), (0, 1)):
        spec = RunSpec(task=task, evaluation={"temperature": temperature, "samples_per_problem": 8})
        assert problems_of(spec, Assumptions()) == [7, 50, 3]
        runs = [SimpleNamespace(variant=name, spec=spec) for name in "ab"]
        sweep = SimpleNamespace(runs=runs, baseline="a")
        assert design(sweep) == (2, 1, (7, 50, 3), samples, 1)


def test_runs_of_one_size_do_the_same_work_in_a_step():
    changes = {}, {"reference": "old"}, {"dynamic_sampling": True}, {"advantage": {"type": "gae"}}
    runs = [{"algorithm": {"name": "grpo"} | change} for change in changes]
    runs += [{"rollout": {"engine": "vllm"}}, {"rollout": {"max_prompt_tokens": 32}}]
    assert len({size(RunSpec(**run).model_dump(mode="json")) for run in runs}) == len(runs)
