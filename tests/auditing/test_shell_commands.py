"""Commands of shell scripts, read as text: only what reaches a command is in it."""

import pytest

from rpg.auditing.shell_commands import commands, is_known, plain


def words(text):
    """Of the last command."""
    return [plain(word) for word in commands(text)[-1].words]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("run a b", "run a b"),
        ("run 'a b' \"c d\"", "run|a b|c d"),
        ("run a \\\n  b # no\n", "run a b"),
        ("A=1\nrun x=$A y=${A} z=${B:-2}", "run x=1 y=1 z=2"),
        ("A=1\nA=2\nrun $A", "run 2"),
        ("A='$B'\nrun $A", "run $B"),
        ('A="a\n b"\nrun $A', "run a b"),
        ("A=(x 'y z')\nrun \"${A[@]}\"", "run|x|y z"),
        ("A=(x)\nB=(y)\nrun ${A[@]}", "run x"),
        ("A=(x)\nA+=(y # no\n z)\nrun ${A[@]}", "run x y z"),
        ("A=a\nA+=b\nrun $A", "run ab"),
        ("cat > f <<EOF\nrun wrong\nEOF\nrun right", "run right"),
        ("sh -c 'run inside'", "run inside"),
        ("export A=1\nrun $A", "run 1"),
        ('if [ -z "$A" ]; then A=5; fi\nrun $A', "run 5"),
        ("A=1; if true; then A=1; fi; run $A", "run 1"),
        ("first && run second", "run second"),
        ("run a=$((1 + X)) b=$(date +%s)", "run|a=$((1 + X))|b=$(date +%s)"),
        ("N=3\nM=$((N * 2))\nrun $((1 + M)) $(( ${M} % 4 )) $((7 / N))", "run 7 2 2"),
        ("read -r -d '' A <<EOF\none \\\n  two\nEOF\nrun $A", "run one two"),
        ("N=1\nread A <<'END'\n$N\nEND\nrun $A", "run $N"),
        ("mason -- source x \\&\\& run y", "mason -- source x && run y"),
    ],
)
def test_a_command_gets_the_words_that_the_shell_would_pass(script, expected):
    assert words(script) == expected.split("|" if "|" in expected else " ")


@pytest.mark.parametrize(
    "script",
    [
        "run a=$A",
        "A=1\nif true; then A=2; fi\nrun a=$A",
        "case $X in\n one) A=1;;\n two) A=2;;\nesac\nrun a=$A",
        "for A in 1 2; do run a=$A; done",
        "A=$(date)\nrun a=$A",
        "N=$X\nrun a=$((N * 2))",
        "run a=$((2 ** 3))",
        "B=(b)\nif true; then B+=(a=1); fi\nrun ${B[@]}",
        "if true; then B=(a=1); else B=(a=2); fi\nrun ${B[@]}",
    ],
)
def test_what_depends_on_something_else_is_not_known(script):
    unknown = [word for word in commands(script)[-1].words if not is_known(word)]

    assert unknown
    assert all(word.startswith("a=") for word in unknown)


@pytest.mark.parametrize(
    "script",
    [
        'case $X in\n one) A="a=1";;\n two) A="a=2 --b 3";;\nesac\nrun $A',
        'A=""\nif true; then A="a=1 --b=1"; fi\nrun $A',
        'A="a=1"\nif true; then A+=" --b=2"; fi\nrun $A',
    ],
)
def test_the_keys_that_a_variable_may_set_are_named_without_a_value(script):
    found = commands(script)[-1].words
    assert found[:3] == ["run", "$A", "a=$"]


def test_the_name_of_a_program_in_branches_adds_no_words():
    script = 'if true; then P="python -m"; else P="torchrun -n 2"; fi\n$P run a=1'
    assert commands(script)[-1].words == ["$P", "run", "a=1"]
