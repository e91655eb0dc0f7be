"""Environments of the package verifiers, by its interface: a stand-in that has what is used, and the package itself (0.3.1)
where it can be imported."""

import os

import pytest

from rpg.config.code import kept_source
from rpg.config.task import EnvironmentTask
from rpg.environments.process import EnvironmentFault, Environments

STAND_IN = """
from types import SimpleNamespace
class ClientConfig: pass
class ToolCall(SimpleNamespace): pass
class UserMessage(SimpleNamespace): pass
class AssistantMessage(SimpleNamespace): pass
class Tool(SimpleNamespace):
    def model_dump(self, exclude_none): return vars(self)
class Rubric:
    has_group_rewards = False
    def __init__(self, funcs, weights): self.funcs, self.weights = funcs, weights
    async def score_rollout(self, state):
        given = {"completion": state["trajectory"][-1]["completion"], "answer": state["answer"], "state": state}
        state["reward"] = sum(w * f(**given) for f, w in zip(self.funcs, self.weights))
class MultiTurnEnv:
    tool_defs = None
    def __init__(self, dataset, rubric, max_turns=1): self.rubric, self.max_turns = rubric, max_turns
    async def init_state(self, columns, client, model):
        prompt = [UserMessage(**message) for message in columns["prompt"]]
        return {**columns, "prompt": prompt, "trajectory": [], "trajectory_id": "", "final_env_response": None}
    async def setup_state(self, state): pass
    async def add_trajectory_step(self, state, step): state["trajectory"].append(step)
    async def is_completed(self, state): return len(state["trajectory"]) == self.max_turns
    async def get_prompt_messages(self, state):
        said = state["trajectory"][-1]["prompt"] + state["trajectory"][-1]["completion"]
        return said + await self.env_response(said, state)
    async def cleanup(self, state): pass
    async def env_response(self, messages, state): raise AssertionError
SingleTurnEnv = MultiTurnEnv
class ToolEnv(MultiTurnEnv):
    def __init__(self, tools, **settings):
        super().__init__(**settings)
        self.tool_defs = [Tool(name=tool.__name__) for tool in tools]
        self.tools = {tool.__name__: tool for tool in tools}
    async def is_completed(self, state): return not state["trajectory"][-1]["completion"][-1].tool_calls
    async def env_response(self, messages, state):
        calls = messages[-1].tool_calls
        return [UserMessage(content=str(self.tools[call.name](**eval(call.arguments)))) for call in calls]
"""
MODULE = '''
import random
import verifiers as vf
def right(completion, answer, **_): return float(completion[-1].content == answer)
def turns(state, **_): return float(len(state["trajectory"]))
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b
class Game(vf.MultiTurnEnv):
    async def setup_state(self, state): state["hidden"] = random.choice("01")
    async def env_response(self, messages, state, **_):
        if messages[-1].content == state["hidden"]:
            state["final_env_response"] = [vf.UserMessage(content="=")]
        return [vf.UserMessage(content="the other")]
class JudgeRubric(vf.Rubric): pass
def load_environment(kind, judge=False, **settings):
    rubric = (JudgeRubric if judge else vf.Rubric)(funcs=[right, turns], weights=[1.0, 0.25])
    return (Game if kind == "Game" else getattr(vf, kind))(dataset=lambda: None, rubric=rubric, **settings)
def tools(): return load_environment("ToolEnv", tools=[multiply])
class Set: task_type = None
'''
CALL = '<tool_call>{"name": "multiply", "arguments": {"a": 3, "b": 4}}</tool_call>'
ROW = {"prompt": [{"role": "user", "content": "3*4="}], "answer": "12"}


@pytest.fixture(params=["stand-in", "verifiers"])
def made(request, tmp_path, monkeypatch):
    (tmp_path / "words.py").write_text(MODULE)
    if request.param == "verifiers":
        pytest.importorskip("verifiers.types", reason="needs verifiers < 0.4")
    else:
        (tmp_path / "site/verifiers").mkdir(parents=True)
        (tmp_path / "site/verifiers/__init__.py").write_text(STAND_IN)
        (tmp_path / "site/verifiers/types.py").write_text("from verifiers import *")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}")

    def make(name="load_environment", **arguments):
        fields = {
            "train": "train.jsonl",
            "benchmarks": {"held-out": "held-out.jsonl"},
            "arguments": arguments,
        }
        fields |= {"type": "environment", "factory": f"words:{name}", "call": "turn", "seconds": 60}
        task = EnvironmentTask.model_validate(fields).model_copy(update={"beside": tmp_path})
        return Environments(task, kept_source(task))

    return make


def test_single_turns_tools_and_a_game_are_rewarded_by_their_rubric(made):
    def talk(environments, turns):
        assert environments.begin(0, ROW, "key") is None
        replies = [environments.call(0, turn) for turn in turns]
        return [reply and reply.text for reply in replies], environments.reward(0)

    with made(kind="SingleTurnEnv") as environments:
        assert talk(environments, ["12"]) == ([None], 1.25)
    with made("tools") as environments:
        assert environments.schemas()[0]["function"]["name"] == "multiply"
        assert talk(environments, ["So " + CALL, "12"]) == (["12", None], 1.5)
    with made(kind="Game", max_turns=9) as environments:
        assert talk(environments, ["2", "0", "1"]) == (["the other", "the other", None], 0.75)


def test_what_cannot_be_used_is_refused_with_a_sentence(made):
    for name, arguments, words in (
        ("load_environment", {"kind": "Game", "judge": True}, "needs a judge with an API cannot be used"),
        ("Set", {}, "a Taskset of verifiers 0.4 cannot be used"),
    ):
        with made(name, **arguments) as environments, pytest.raises(EnvironmentFault, match=words):
            environments.begin(0, ROW, "key")
