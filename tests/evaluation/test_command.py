"""`rpg evaluate` as a person uses it."""

import json
import re
import sys

import pytest

from rpg.cli import main


def rpg(monkeypatch, capsys, *arguments):
    # Whatever the terminal, a line of the table is one line.
    monkeypatch.setattr("rpg.cli.app.console.width", 160)
    monkeypatch.setattr(sys, "argv", ["rpg", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


def test_numbers_and_where_the_samples_are(
    checkpoints, own_benchmark, tmp_path, monkeypatch, capsys
):
    lengths = ("--max-prompt-tokens", 64, "--max-response-tokens", 32)
    call = ("evaluate", checkpoints[0], "-b", own_benchmark, *lengths, "--home", tmp_path, "--k", 3)
    code, out, err = rpg(monkeypatch, capsys, *call)
    assert code == 0
    assert "mine: 72/72 samples, " in err
    assert "tokens/s, 0:00 left" in err
    line = next(line for line in out.splitlines() if line.startswith("mine "))
    assert re.match(r"mine +24 +3 +0\.\d{3} \[0\.\d{3}, [01]\.\d{3}\] +0\.\d{3} \[0\.\d{3}, ", line)
    [path] = (tmp_path / "evaluations").rglob("mine.parquet")
    assert f"samples: {path}" in out
    code, again, err = rpg(monkeypatch, capsys, *call)
    assert (code, again, err.strip()) == (0, out, "mine: already done")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument"),
        (("model", "--k", "0"), "--k"),
        (("model", "--temperature", "nan"), "--temperature"),
        (("model", "--foo"), "No such option: --foo"),
        (("model", "-b", "aime42"), "did you mean 'aime2"),
        (("model", "-b", ","), "benchmarks: none is named"),
        (
            ("model", "--engine", "sglang"),
            "engine: 'sglang' is not known; known: local, huggingface, vllm",
        ),
        (("model", "--device", "tpu"), "'tpu' is not one of 'cpu', 'cuda'"),
        (("model", "--dtype", "int8"), "'int8' is not one of 'float32', 'bfloat16'"),
        (("model", "--workers", "2"), "name it with --ray"),
        (("model", "-b", "nowhere.yaml"), "nowhere.yaml: no such file"),
        (("model", "--preset", "sobber"), "preset 'sobber' is not known; did you mean 'sober'?"),
        (("model", "--prompts", "99"), "prompts: 99; accepted: 1 to 5"),
        (
            ("model", "-b", "chain-easy", "--prompts", "2"),
            "prompts: 2; accepted: 1 to 1 for chain-easy",
        ),
    ],
)
def test_a_mistake_is_a_line_and_exit_code_2(arguments, words, tmp_path, monkeypatch, capsys):
    home = ["--home", tmp_path] if arguments else []
    code, _, err = rpg(monkeypatch, capsys, "evaluate", *arguments, *home)
    assert code == 2
    assert words in err
    assert "Traceback" not in err
    assert not (tmp_path / "evaluations").exists()


def test_a_folder_without_a_model_is_refused(own_benchmark, tmp_path, monkeypatch, capsys):
    code, _, err = rpg(
        monkeypatch, capsys, "evaluate", tmp_path, "-b", own_benchmark, "--home", tmp_path
    )
    assert code == 2
    assert f"{tmp_path} is not a Hugging Face model: config.json is missing" in err


def test_a_preset_sets_what_is_not_given_and_several_prompts_say_how_far_the_accuracy_moves(
    checkpoints, own_benchmark, tmp_path, monkeypatch, capsys
):
    call = (
        "evaluate",
        checkpoints[0],
        "-b",
        own_benchmark,
        "--max-prompt-tokens",
        512,
        "--home",
        tmp_path,
    )
    call += ("--preset", "sober", "--max-response-tokens", 8, "--prompts", 3)
    code, out, err = rpg(monkeypatch, capsys, *call)
    assert code == 0, err
    [record] = (tmp_path / "evaluations").rglob("evaluation.json")
    entries = json.loads(record.read_text())
    assert set(entries) == {"mine", "mine-prompt-2", "mine-prompt-3"}
    identity = entries["mine"]["identity"]
    sampling = identity["sampling"]
    assert identity["samples_per_problem"] == 3
    assert sampling["temperature"] == 0.8
    assert sampling["restriction"]["top_p"] == 0.9
    assert sampling["max_response_tokens"] == 8
    assert len({entry["identity"]["prompt"]["template"] for entry in entries.values()}) == 3
    assert "arXiv 2504.07086" in out
    assert "with another prompt" in out
    assert set(entries["mine"]["standard_deviations"]) == {"prompt", "problem", "sampling"}
