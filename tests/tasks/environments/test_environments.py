"""Environments as TRL takes them, in their bounded process: what a tool may do to us, which is
nothing."""

import pytest

from rpg.config.code import kept_source
from rpg.config.task import EnvironmentTask
from rpg.tasks.environments.process import EnvironmentFault, Environments
from rpg.tasks.environments.worker import tools_of

MODULE = '''
import ctypes, os, random, socket

class Counter:
    """Counts, in the style of TRL's documentation, and misbehaves when asked to."""

    def reset(self, start=0, **kwargs) -> str | None:
        self.count = start
        return "Count!"

    def add(self, amount: int) -> int:
        """
        Add to the counter.

        Args:
            amount: How much.

        Returns:
            The counter.
        """
        self.count += amount
        return self.count

    def dice(self) -> int:
        """Draw a number."""
        return random.randrange(10**6)

    def fail(self, how: str) -> str:
        """
        Misbehave.

        Args:
            how: In which way.
        """
        if how == "hang in C":
            ctypes.CDLL(None).pause()
        if how == "exit":
            os._exit(3)
        if how == "half a letter":
            raise ValueError("no " + chr(0xD83D))
        if how == "quit":
            raise SystemExit
        if how == "halfway":
            self.count += 100
            raise ValueError
        if how == "print":
            print("x" * 10**6)
        if how == "memory":
            return "x" * len(bytearray(10**10))
        if how == "network":
            socket.create_connection(("127.0.0.1", 9))
        if how == "name":
            socket.gethostbyname("localhost")
        return "x" * 10**6

    async def later(self) -> str:
        """Say it later."""
        return "later"

    def get_reward(self, turns) -> float:
        return float(self.count + len(turns))

    def _hidden(self):
        raise AssertionError


class Listens:
    def reset(self, **kwargs):
        return None

    def get_reward(self, turns):
        return turns.index("here")


class Broken:
    def reset(self, **kwargs):
        raise KeyError("no such thing")

    def look(self):
        """Look."""
'''


@pytest.fixture
def made(tmp_path):
    (tmp_path / "counting.py").write_text(MODULE)

    def make(name="Counter", **fields):
        files = {
            "train": str(tmp_path / "train.jsonl"),
            "benchmarks": {"held-out": str(tmp_path / "held-out.jsonl")},
        }
        task = EnvironmentTask.model_validate(
            {"type": "environment", "factory": f"counting:{name}", "seconds": 1, **files, **fields}
        ).model_copy(update={"beside": tmp_path})
        return Environments(task, kept_source(task))

    return make


def call(name, **arguments):
    return f'{{"name": "{name}", "arguments": {arguments}}}'.replace("'", '"')


FAILURES = {
    "raise": (call("add", amount="x"), "TypeError"),
    "not json": ("add 1", "ValueError: expected"),
    "not an object": ("[1]", "ValueError: expected"),
    "arguments as text": ('{"name": "add", "arguments": "{}"}', "ValueError: expected"),
    "deep": ("[" * 100_000, "Error: "),
    "unknown": (call("_hidden"), "no tool '_hidden'; there are: add, dice, fail, later"),
    "reset": (call("reset"), "no tool 'reset'"),
    "halfway": (call("fail", how="halfway"), "ValueError"),
    "megabyte": (call("fail", how="return"), "returned 1000000 characters, more than 2000"),
    "printed": (call("fail", how="print"), "printed more than 2000 characters"),
    "memory": (call("fail", how="memory"), "MemoryError"),
    "network": (
        call("fail", how="network"),
        "PermissionError: the network is not allowed (task.network)",
    ),
    "name": (
        call("fail", how="name"),
        "PermissionError: the network is not allowed (task.network)",
    ),
    "half a letter": (call("fail", how="half a letter"), "ValueError: no ?"),
    "quit": (call("fail", how="quit"), "SystemExit"),
    "exit": (call("fail", how="exit"), "its process ended with exit code 3"),
    "hang in C": (call("fail", how="hang in C"), "no answer within 1 s (task.seconds)"),
}


def test_a_tool_that_misbehaves_costs_one_reply_and_nobody_else_notices(made):
    """Whatever it does, even ending the process that all environments share: every counter has what
    was added to it, also before a failure, and in a process that was told of it."""
    with made() as environments:
        for row in (0, 1):
            assert environments.begin(row, {"start": 10 * row}, f"key {row}") == "Count!"
        for number, (text, words) in enumerate(FAILURES.values(), 1):
            reply = environments.call(0, text)
            assert reply.failed and words in reply.text, reply
            assert len(reply.text) < 300 and "\n" not in reply.text, reply
            assert environments.call(1, call("add", amount=1)) == (str(10 + number), False)
        assert environments.call(0, call("later")) == ("later", False)
        assert (environments.reward(0, []), environments.reward(1, ["Done."])) == (
            100.0,
            11.0 + len(FAILURES),
        )


def test_what_an_environment_draws_follows_from_its_conversation_alone(made):
    def drawn(rows, break_in):
        with made() as environments:
            for row in rows:
                environments.begin(row, {}, f"key {row}")
            first = {row: environments.call(row, call("dice")).text for row in rows}
            if break_in:
                environments.close()
            return {row: (first[row], environments.call(row, call("dice")).text) for row in rows}

    expected = drawn([0, 1, 2], break_in=False)
    assert len({*expected[0], *expected[1], *expected[2]}) == 6
    assert (
        drawn([2, 0, 1], break_in=True) == expected
    )  # a new process has been told what was said before


def test_without_a_tool_the_turns_are_enough_for_a_reward(made):
    with made("Listens") as environments:
        environments.begin(0, {}, "key")
        assert environments.reward(0, ["there", "here"]) == 1


def test_the_network_is_there_for_a_task_that_allows_it(made):
    with made(network=True) as environments:
        environments.begin(0, {}, "key")
        assert "ConnectionRefusedError" in environments.call(0, call("fail", how="network")).text


def test_a_class_that_cannot_be_used_ends_the_run_with_a_sentence(made):
    for how, words in (
        ({"name": "Broken"}, "counting:Broken: reset: KeyError"),
        ({"call": "text"}, "text needs one tool with one param"),
    ):
        with made(**how) as environments, pytest.raises(EnvironmentFault, match=words):
            environments.begin(0, {}, "key")


def test_tools_and_their_schemas_are_those_of_trl(made):
    """TRL finds tools on the class, and transformers describes them from their docstrings."""
    with made() as environments:
        schemas = environments.schemas()
    functions = {schema["function"]["name"]: schema["function"] for schema in schemas}
    assert sorted(functions) == ["add", "dice", "fail", "later"]
    amount = {"type": "integer", "description": "How much."}
    assert functions["add"]["parameters"]["properties"] == {"amount": amount}

    class Inherits:
        def reset(self):
            raise AssertionError

        @property
        def lazy(self):
            raise AssertionError

        def look(self):
            """Look."""

    assert [*tools_of(Inherits())] == ["look"]
