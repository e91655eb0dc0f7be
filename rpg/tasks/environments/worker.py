"""The process in which environments run: `python -m rpg.tasks.environments.worker`.

A line of JSON in: first the source of the class, then one event of one conversation each; a line of
JSON out. Environments are classes as TRL's GRPOTrainer takes them (`environment_factory`, TRL
1.16): `reset(**columns)` before a conversation, every other public method a tool, and
`get_reward()`.
"""

import inspect
import io
import json
import math
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from rpg.tasks.rewards.function_calls import BadReward, awaited
from rpg.tasks.rewards.function_worker import load, serve

_NO_TOOLS = ("reset", "get_reward")
_CALLS = "connect getaddrinfo gethostbyname sendto sendmsg bind"
_NETWORK = [f"socket.{call}" for call in _CALLS.split()]


class _Printed(io.TextIOBase):
    """What a tool prints goes to the log, up to a limit, beyond which the tool fails."""

    def __init__(self, limit: int):
        self.limit = self.left = limit

    def write(self, text: str) -> int:
        self.left -= len(text)
        if self.left < 0:
            raise ValueError(f"printed more than {self.limit} characters")
        return sys.stderr.write(text)


def tools_of(environment: object) -> dict[str, Callable[..., Any]]:
    """Name -> tool of an environment, as TRL finds them: on its class."""
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    names = [name for name, _ in members if name not in _NO_TOOLS and not name.startswith("_")]
    return {name: getattr(environment, name) for name in names}


def asked(text: str, tools: Mapping[str, Callable[..., Any]], form: str) -> Any:
    """What the tool that `text` calls returns. Form `json`: {"name": ..., "arguments": {...}};
    `text`: the one argument of the only tool. Raises ValueError for another text, and whatever the
    tool raises.
    """
    if form == "json":
        try:
            call = json.loads(text)
            name = str(call["name"])
            arguments = {**(call.get("arguments") or {})}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError('expected {"name": ..., "arguments": {...}}') from None
        if name not in tools:
            raise ValueError(f"no tool {name[:40]!r}; there are: {', '.join(tools)}")
        return awaited(tools[name](**arguments))
    (tool,) = tools.values()
    (name,) = inspect.signature(tool).parameters
    kind = get_type_hints(tool).get(name)
    return awaited(tool(kind(text.strip()) if kind in (int, float) else text.strip()))


class _Conversations:
    """The environments of unfinished conversations, by number. What they draw at random follows
    from a conversation's key and the number of the event, whatever other conversations do.
    """

    def __init__(self, setup: Mapping[str, Any]):
        self.setup = setup
        self.factory = load(setup["function"], setup["sources"])
        self.there: dict[int, Any] = {}
        tools = tools_of(self.factory())
        name = setup["function"]
        if not tools and not hasattr(self.factory, "get_reward"):
            raise BadReward(f"{name}: has no tool: a public method beside reset and get_reward")
        parameters = [len(inspect.signature(tool).parameters) for tool in tools.values()]
        if setup["form"] == "text" and parameters != [1]:
            why = (
                f"{name}: task.call text needs one tool with one parameter; there are: "
                f"{', '.join(tools)}"
            )
            raise BadReward(why)

    def answer(self, event: Mapping[str, Any]) -> Any:
        """What an event comes to; raises what the environment raises."""
        what = event["what"]
        row = event.get("row", 0)
        if what == "schemas":
            # Descriptions of the tools from their docstrings, for a chat template.
            from transformers.utils import get_json_schema

            return [get_json_schema(tool) for tool in tools_of(self.factory()).values()]
        if what == "forget":
            for number in event["rows"]:
                del self.there[number]
            return None
        random.seed(f"{event['key']} {event['number']}")
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(random.getrandbits(32))
        if what == "begin":
            self.there[row] = self.factory()
            return awaited(self.there[row].reset(**event["columns"]))
        if what == "call":
            text = str(asked(event["text"], tools_of(self.there[row]), self.setup["form"]))
            if len(text) > self.setup["characters"]:
                raise ValueError(
                    f"returned {len(text)} characters, more than {self.setup['characters']}"
                )
            return text
        reward = getattr(self.there[row], "get_reward", None)
        if reward is None:
            return None
        asks = "turns" in inspect.signature(reward).parameters
        value = awaited(reward(event["turns"]) if asks else reward())
        if value is not None and not math.isfinite(value := float(value)):
            raise ValueError(f"get_reward returned {value}")
        return value


def _refuse_network(event: str, arguments: tuple[Any, ...]) -> None:
    """As an audit hook: Python code of this process that asks for a network is refused."""
    local = len(arguments) == 2 and isinstance(
        arguments[1], str | bytes
    )  # a socket of this machine: a path
    if event in _NETWORK and not local:
        raise PermissionError("the network is not allowed (task.network)")


def _prepare(setup: Any) -> Callable[[Any], dict[str, Any]]:
    conversations = _Conversations(setup)
    if not setup["network"]:
        sys.addaudithook(_refuse_network)

    def answer(event: Any) -> dict[str, Any]:
        sys.stdout = _Printed(setup["characters"])
        try:
            return {"value": conversations.answer(event)}
        except BaseException as error:  # noqa: BLE001 - the user's code may raise anything, and SystemExit
            limit = " (task.memory_gib)" if isinstance(error, MemoryError) else ""
            message = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(": ")
            return {"error": message[:200] + limit}

    return answer


if __name__ == "__main__":
    serve(_prepare)
