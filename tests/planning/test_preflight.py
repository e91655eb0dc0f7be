"""What is wrong is found before anything starts, all of it in one list."""

import json
import socket
from pathlib import Path

import pytest

from rpg.config.load import resolve
from rpg.planning.preflight import mistakes, preflight, unreachable
from rpg.store import Layout, StoreError, home
from tests.specs import load_run

ROOT = Path(__file__).parents[2]


ROWS = "".join(
    f'{{"prompt": "p{number}", "answer": "{number}", "demonstration": "Answer: {number}"}}\n'
    for number in range(40)
)
RUN = """\
task:
  type: file
  train: train.jsonl
  benchmarks: {held: held.jsonl}
  verifier: {type: marker, marker: "Answer:"}
algorithm: grpo
training: {steps: 2}
"""


def test_files_that_are_missing_empty_or_folders_are_named_with_their_field(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    files = {
        "train": str(tmp_path / "none.jsonl"),
        "benchmarks": {"a": str(tmp_path / "empty.jsonl"), "b": str(tmp_path)},
    }
    lines = mistakes([resolve({"task": {"type": "file", **files}}, "x")], Layout(tmp_path))
    assert [line.split(":")[0] for line in lines] == [
        "task.train",
        "task.benchmarks.a",
        "task.benchmarks.b",
    ]
    assert "no such file" in lines[0]
    assert "the file is empty" in lines[1]
    assert "is a folder" in lines[2]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/nowhere/model", True),
        ("./model", True),
        ("Qwen/Qwen3-0.6B", False),
        ("smollm2-135m", False),
    ],
)
def test_a_model_that_cannot_be_is_found_and_one_that_may_be_on_the_hub_is_not(
    tmp_path, path, found
):
    spec = resolve({"model": {"type": "pretrained", "path": path}}, "x")
    assert any("model.path" in line for line in mistakes([spec], Layout(tmp_path))) is found


def test_a_folder_that_is_no_model_says_what_it_lacks(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    spec = resolve({"model": {"type": "pretrained", "path": str(tmp_path)}}, "x")
    [line] = mistakes([spec], Layout(tmp_path))
    assert "lacks *.safetensors, a tokenizer" in line


def test_the_list_holds_everything_at_once(tmp_path):
    spec = resolve(
        {
            "model": {"type": "pretrained", "path": "/nowhere/model"},
            "evaluation": {"engine": {"type": "vllm"}},
        },
        "x",
    )
    lines = preflight([spec, spec], Layout(tmp_path))
    assert [line.partition(":")[0] for line in lines] == ["model.path", "evaluation.engine.type"]
    assert "vllm, which is not installed" in lines[1]
    [line] = preflight([resolve({"rollout": {"engine": "vllm"}}, "x")], Layout(tmp_path))
    assert "rollout.engine.type: vllm needs the package vllm" in line


def file_task(folder, train, **changes):
    for name, problems in {"train": train, "test": [("1+1", "2")]}.items():
        lines = (json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in problems)
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    task = {"type": "file", "train": "train.jsonl", "benchmarks": {"held-out": "test.jsonl"}}
    run = {"task": task, "model": {"type": "tiny", "warm_start": None}, **changes}
    (folder / "run.yaml").write_text(json.dumps(run))
    return folder / "run.yaml"


def test_doctor_counts_the_longest_prompt_with_the_runs_tokenizer(tmp_path):
    from rpg.cli.doctor import _of_file

    file = file_task(tmp_path, [("a", "1"), ("b" * 63, "1"), ("c" * 64, "1"), ("d" * 70, "1")])
    begin = "rollout.max_prompt_tokens: 64, but 2 prompts are longer, the longest has 71 tokens: "
    assert _of_file([load_run(file)], Layout(tmp_path)) == [begin + repr("d" * 70)]
    assert _of_file([load_run(file, {"rollout.max_prompt_tokens": 71})], Layout(tmp_path)) == []


def test_a_sweep_whose_prompts_are_too_long_ends_before_it_trains(tmp_path, monkeypatch, capsys):
    from flows.sweep.conductor import register
    from rpg.backends.local import prepare
    from rpg.config.sweep_spec import single_run
    from rpg.models import initial_policy
    from rpg.tasks.preparation import data_digest

    layout = Layout(tmp_path / "data")
    register(single_run(file_task(tmp_path, [("d" * 70, "1")]), {}, data_digest), layout)
    monkeypatch.setattr(prepare, "die_with_parent", lambda: None)
    assert prepare.main([str(layout.sweep_folder("run"))]) == 1
    assert "rollout.max_prompt_tokens: 64, but a prompt has 71 tokens" in capsys.readouterr().out
    model = {"type": "pretrained", "path": "org/later"}
    later = load_run(file_task(tmp_path, [("d" * 70, "1")], model=model))
    initial_policy.require_lengths(later, layout.home)
    assert not initial_policy.lengths_checked(later, layout.home).exists(), "it is not here"


def test_doctor_asks_the_ports_that_the_runs_need(tmp_path, monkeypatch):
    with socket.socket() as taken, socket.socket() as free:
        for one in (taken, free):
            one.bind(("127.0.0.1", 0))
        taken.listen()
        there, nobody = (f"127.0.0.1:{one.getsockname()[1]}" for one in (taken, free))
        free.close()
        verl = {"type": "verl", "ray": {"type": "address", "address": nobody}}
        specs = [resolve({"backend": verl}, "x")]
        specs.append(resolve({"evaluation": {"place": {"type": "ray", "address": there}}}, "x"))
        monkeypatch.setenv("PREFECT_API_URL", f"http://{nobody}/api")
        lines = unreachable(specs)
        assert [line.split(" (")[0] for line in lines] == [
            f"backend.ray.address: no answer from {nobody}",
            f"PREFECT_API_URL: no answer from http://{nobody}/api",
        ]
        verl["ray"]["address"] = there
        monkeypatch.setenv("PREFECT_API_URL", f"http://{there}/api")
        assert unreachable([resolve({"backend": verl}, "x")]) == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            "because #### 2",
            "train-00002: field answer: 'because #### 2' contains a whole solution: only "
            "what follows #### is "
            "the answer; write '2'",
        ),
        (
            "because 1 and 1 make two of them and never any more than that as everybody knows",
            "1 gold answers are whole sentences, which hardly any response will match, e.g. "
            "train-00002",
        ),
    ],
)
def test_rpg_data_says_which_gold_answers_no_response_can_equal(
    tmp_path, command_line, answer, said
):
    file = file_task(tmp_path, [("a", "1"), ("b", answer)])
    code, out, errors = command_line("data", file, "--home", tmp_path / "data")
    assert code == (2 if "####" in answer else 0)
    assert said in f"{' '.join(out.split())} {errors}"


def test_too_little_disk_is_foretold(tmp_path):
    sizes = {
        "hidden_size": 2**18,
        "layers": 900,
        "heads": 4096,
        "kv_heads": 4096,
        "intermediate_size": 2**20,
    }
    lines = preflight([resolve({"model": {"type": "tiny", **sizes}}, "x")], Layout(tmp_path))
    assert any("MB are free" in line and "keep_checkpoints: last" in line for line in lines), lines


def test_a_data_folder_that_can_never_be_is_refused(tmp_path):
    (tmp_path / "afile").touch()
    with pytest.raises(StoreError, match="afile is a file, not a folder"):
        home(tmp_path / "afile" / "x")
    with pytest.raises(StoreError, match="'\\?' cannot be used"):
        home(tmp_path / "what?")
    assert home(tmp_path / "later" / "x") == tmp_path / "later" / "x"


def test_show_and_render_need_neither_network_nor_data(command_line, tmp_path, monkeypatch):
    monkeypatch.setenv("RPG_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("RPG_DATA", raising=False)
    monkeypatch.setattr("socket.getaddrinfo", None)  # no host can be looked up
    file = ROOT / "configs/papers/rpg/table3.yaml"
    code, _, errors = command_line("show", file)
    assert code == 0 and "identities are unknown" in errors, errors
    runs = json.loads(command_line("show", file, "--json")[1])["runs"]
    assert all(run["run_id"] is None and run["run"].endswith("????????") for run in runs)
    code, rendered, errors = command_line(
        "render", file, "--run", runs[0]["run"].removesuffix("????????")
    )
    assert code == 0, errors
    assert "not-known-yet" in rendered
    assert "identity is not known yet" in errors


def test_doctor_of_a_file_lists_all_that_is_wrong(command_line, tmp_path):
    lost = {"model": {"type": "pretrained", "path": "/nowhere/model"}}
    file = file_task(tmp_path, [("train", "because #### 2")], **lost)
    code, out, errors = command_line("doctor", file, "--home", tmp_path / "data")
    out = " ".join(out.split())
    assert code == 1
    assert "Traceback" not in errors
    assert "NO model.path: /nowhere/model" in out
    assert "what follows #### is the answer" in out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train.jsonl": ROWS + '{"prompt": "torn'}, "train.jsonl: line 41: not JSON"),
        (
            {"held.jsonl": '{"prompt": "x", "answer": NaN}'},
            "held.jsonl: line 1: column answer: expected text or a number",
        ),
        (
            {"train.jsonl": ROWS.replace("demonstration", "shown")},
            "train.jsonl: field demonstration is missing",
        ),
        ({"held.jsonl": None}, "held.jsonl: no such file"),
        (
            {"run.yaml": RUN + "model: {type: pretrained, path: ./nowhere}\n"},
            "model.path: nowhere: no such folder",
        ),
        ({"run.yaml": RUN + "model: {type: pretrained, path: no/such}\n"}, "model 'no/such' is n"),
        ({"run.yaml": RUN + "trainin: {steps: 3}\n"}, "run.yaml:8: trainin: unknown field"),
    ],
)
def test_data_and_configuration_are_checked_before_any_server_or_training_starts(
    tmp_path, monkeypatch, command_line, change, words
):
    from flows.sweep import conductor

    files = {
        "train.jsonl": ROWS,
        "held.jsonl": '{"prompt": "x", "answer": "1"}',
        "run.yaml": RUN,
    } | change
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(conductor, "conduct", lambda *_: pytest.fail("something was started"))
    monkeypatch.chdir(tmp_path)
    code, _, errors = command_line("train", "run.yaml", "--home", "data")
    assert code == 2
    assert words in errors
    assert not (tmp_path / "data" / "prefect").exists()
    assert not (tmp_path / "data" / "runs").exists()
