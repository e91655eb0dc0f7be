"""A task set of verifiers 0.4: its tools are called, its rewards paid, and what cannot be done here
is refused."""

import pytest
from transformers.utils import get_json_schema

from rpg.tasks.environments.worker import asked, tools_of
from rpg.tasks.rewards.function_calls import awaited

vf = pytest.importorskip(
    "verifiers.v1", reason="needs the package verifiers (pip install verifiers==0.4.0)"
)
from task_sets import environment, problems  # noqa: E402


class Data(vf.TaskData):
    answer: str


class Memory(vf.State):
    used: int = 0


class Tools(vf.Toolset[vf.ToolsetConfig, Memory]):
    TOOL_PREFIX = "calc"

    @vf.tool
    def multiply(self, a: int, b: int) -> int:
        """Multiply two numbers."""
        self.state.used += 1
        return a * b


class Product(vf.Task[Data, Memory]):
    @classmethod
    def toolsets(cls, _config):
        return [Tools(vf.ToolsetConfig())]

    @vf.reward(weight=1.0)
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.endswith(self.data.answer))

    @vf.reward(weight=0.25)
    async def used(self, trace: vf.Trace) -> float:
        return float(trace.state.used)


class Stopped(Product):
    @vf.stop
    async def enough(self, trace: vf.Trace) -> bool:
        return trace.num_turns >= 3


class Products(vf.Taskset[Product, vf.TasksetConfig]):
    def load(self):
        return [
            Product(Data(prompt=f"{a}*7=", system_prompt="Go on.", answer=str(a * 7)))
            for a in range(3, 5)
        ]


class Stops(Products, vf.Taskset[Stopped, vf.TasksetConfig]):
    """The same, with a stop."""


CALL = '{"name": "calc_multiply", "arguments": {"a": 3, "b": 7}}'


def test_a_conversation_with_a_tool_is_paid_as_the_task_says():
    made = environment(Products(vf.TasksetConfig()))
    row, other = problems(made.task_set)
    assert row["answer"] == "21" and row["prompt"][0] == {"role": "system", "content": "Go on."}
    (conversation, beside), rewards = (made(), made()), []
    awaited(conversation.reset(**row))
    awaited(beside.reset(**other))
    reply = str(asked(CALL, tools_of(conversation), "json"))
    assert reply == "21"
    with pytest.raises(ValueError, match="no tool 'multiply'; there are: calc_multiply"):
        asked(CALL.replace("calc_", ""), tools_of(conversation), "json")
    for each, last in ((conversation, "It is 21"), (conversation, "12"), (beside, "28")):
        turns = [f"Well <tool_call>{CALL}</tool_call>", reply, last]
        rewards.append(awaited(each.get_reward(turns)))
    assert rewards == [1.25, 0.25, 1.0]  # another conversation's calls are its own
    (call,) = beside._trace.nodes[2].message.tool_calls
    assert (call.name, beside._trace.num_turns) == ("calc_multiply", 2)


def test_tools_are_described_and_a_stop_is_refused():
    (tool,) = tools_of(environment(Products(vf.TasksetConfig()))()).values()
    described = get_json_schema(tool)["function"]
    assert described["name"] == "calc_multiply" and "Multiply" in described["description"]
    assert described["parameters"]["required"] == ["a", "b"]
    made = environment(Stops(vf.TasksetConfig()))
    with pytest.raises(ValueError, match="has a stop"):
        awaited(made().reset(**next(problems(made.task_set))))
