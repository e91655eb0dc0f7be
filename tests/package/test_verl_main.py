"""`.ci/verl_main.py` says whether verl's main branch and the newest vLLM go together, and if not,
why; with a stand-in for uv."""

import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def main(tmp_path, monkeypatch):
    """The script's `main` with a uv that refuses vLLM 0.33 beside verl."""
    uv = tmp_path / "uv"
    uv.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && exit 0\n'
        "if grep -q 'vllm>=0.33'; then\n"
        "    echo 'Because vllm>=0.33 depends on transformers>=5.16.1' >&2\n"
        "    exit 1\n"
        "fi\n"
        "printf 'numpy==2.4.0\\ntorch==2.13.0\\nvllm==0.31.0\\n'\n"
    )
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return runpy.run_path(str(ROOT / ".ci" / "verl_main.py"))["main"]


def test_the_resolver_s_reason_is_printed_where_they_do_not_go_together(main, capsys):
    assert main([]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("not together: verl @ git+https://github.com/verl-project/verl, vllm")
    assert "depends on transformers>=5.16.1" in printed


def test_the_decisive_versions_are_printed_where_they_do(main, capsys):
    assert main(["verl==0.9.1", "vllm>=0.28"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["together: verl==0.9.1, vllm>=0.28", "torch==2.13.0", "vllm==0.31.0"]


def test_the_weekly_job_says_what_verl_s_main_branch_has_moved():
    workflow = ROOT / ".github" / "workflows" / "releases-of-others.yml"
    job = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]["verl-main"]
    assert job["strategy"]["matrix"]["command"] == [
        "make verl-main VERL=git+https://github.com/verl-project/verl",
        "python .ci/verl_main.py",
    ]
