r"""Mathematical answers: where a response states one, and whether it equals the gold answer.

In: a response and a gold answer, as text. Out: the stated answer, and a `Verdict` with its reason.
An answer is tokens (lexer), statements around formulas (statements), expression trees (trees,
parser) and exact values (values, numbers, identity_testing). Pure functions: no configuration, no
processes.
Read first: comparison.py.

    from rpg.answers import answer_line, equivalent, last_box
    answer_line("We try.\nAnswer: $x = 2/4$, about 0.5")   # ('$x = 2/4$, about 0.5', False)
    last_box(r"so \boxed{\frac12}")                         # '\\frac12'
    equivalent("1/2", "$x = 2/4$")                          # (True, 'equivalent; read as x=2/4')

`equivalent` may run long on hostile input: `quick` decides what text and plain numbers decide, and
rpg.tasks.rewards calls the rest where it can be killed.
"""

from rpg.answers.comparison import Verdict, equivalent, quick
from rpg.answers.extraction import answer_line, last_box

__all__ = ["Verdict", "answer_line", "equivalent", "last_box", "quick"]
