r"""From tokens to expression trees: sums, products, powers, functions, collections, unions; by
precedence.

A tree is a tuple whose first item names its kind:
    ("number", value, text) ("symbol", name) ("add", a, b) ("multiply", a, b) ("divide", a, b) ("power", a, b)
    ("negative", a) ("factorial", a) ("percent", a) ("call", name, argument, extra) ("pm", a, b) ("mod", a, b)
    ("unit", a, unit) ("number", value, text, (base, digits))
    ("tuple", brackets, items) ("set", items) ("union", items) ("matrix", rows)
    ("chain", items, relations): expressions with relations between them, e.g. x = 2 + 3 = 5
"""

from fractions import Fraction
from typing import Any

from rpg.answers.lexer import Token, Unreadable, value_of

Tree = tuple[Any, ...]
_DEPTH = 60
_MATCHING = {"{": "}", "|(": ")|"} | {kind: kind for kind in ("set", "floor", "ceil", "box")}
_STARTS = {"number", "symbol", "function", "open"}
EMPTY: Tree = ("set", ())
INFINITY: Tree = ("symbol", "infty")
REALS: Tree = ("tuple", "()", (("negative", INFINITY), INFINITY))
_CAPITALS = set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TRANSPOSES = ("T", "top", "intercal")
_SYMBOLS = {"emptyset": EMPTY, "varnothing": EMPTY, "mathbb R": REALS}
_END = Token("end", "")


def read(tokens: list[Token]) -> Tree:
    """One expression, or a chain of them. Raises Unreadable: the tokens are no formula, or nested
    too deeply."""
    parser = _Parser([t for t in tokens if t.kind != "edge"])
    tree = parser.chain()
    if parser.at("command", "over"):
        parser.take()
        tree = ("divide", tree, parser.chain())
    if parser.i < len(parser.tokens):
        raise Unreadable(f"{parser.tokens[parser.i].text!r} where the formula should end")
    return tree


class _Parser:
    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.i = 0
        self.depth = 0
        self.bars = 0

    def peek(self, ahead: int = 0) -> Token:
        i = self.i + ahead
        return self.tokens[i] if i < len(self.tokens) else _END

    def at(self, kind: str, *texts: str) -> bool:
        token = self.peek()
        return token.kind == kind and (not texts or token.text in texts)

    def take(self) -> Token:
        if self.i >= len(self.tokens):
            raise Unreadable("the formula ends too soon")
        self.i += 1
        return self.tokens[self.i - 1]

    def chain(self) -> Tree:
        items = [self.union()]
        relations = []
        while self.at("rel"):
            relations.append(self.take().text)
            items.append(self.union())
        return items[0] if not relations else ("chain", tuple(items), tuple(relations))

    def union(self) -> Tree:
        items = [self.sum()]
        while self.at("op", "cup"):
            self.take()
            items.append(self.sum())
        return items[0] if len(items) == 1 else ("union", tuple(items))

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > _DEPTH:
            raise Unreadable("nested too deeply")
        if self.at("op", "pm"):
            self.take()
            left: Tree = ("pm", ("number", Fraction(0), "0"), self.product())
        else:
            left = self.product()
        while self.at("op", "+", "-", "pm", "mp"):
            sign = self.take().text
            right = self.product()
            right = ("negative", right) if sign in ("-", "mp") else right
            left = ("pm" if sign in ("pm", "mp") else "add", left, right)
        while self.at("op", "mod") or self._at_modulus():
            bracket = self.take().text == "("
            if bracket:
                self.take()
            left = ("mod", left, self.sum())
            if bracket:
                self._expect("close", ")")
        self.depth -= 1
        return left

    def _at_modulus(self) -> bool:
        return self.at("open", "(") and self.peek(1)[:2] == ("op", "mod")

    def product(self) -> Tree:
        left = self.signed()
        while True:
            if self.at("op", "*", "/"):
                sign = self.take().text
                right = self.signed()
                left = _product(left, right) if sign == "*" else ("divide", left, right)
            elif self.at("op", ":"):
                left = self._ratio(left)
            elif self.at("unit"):
                left = ("unit", left, self.take().text)
            elif self._starts_factor() or (self.at("open", "matrix") and left[0] != "matrix"):
                left = _product(left, self._factor_beside())
            else:
                return left

    def _ratio(self, left: Tree) -> Tree:
        """`2:3`, `1:2:3`; `6:30` is a time."""
        self.take()
        token = self.peek()
        right = self.signed()
        if self.at("op", ":"):
            self.take()
            return ("tuple", ":", (("divide", left, right), ("divide", right, self.signed())))
        clock = left[0] == "number" and left[1] < 25 and len(token.text) == 2 and token.text < "60"
        return (
            ("tuple", "time", (left, right))
            if clock
            else ("tuple", ":", (("divide", left, right),))
        )

    def _factor_beside(self) -> Tree:
        """A factor that only stands beside another: `2x`, `3\\sqrt 2`, not `2 3` and not `5` beside
        a box."""
        before = self.tokens[self.i - 1]
        token = self.peek()
        power = before.text == ")" and self.peek(1)[:2] == ("op", "^")
        if token.kind == "number" and before.text != "!" and not power:
            raise Unreadable("a number beside another factor")
        if ("box", "number") in ((token.text, before.kind), (before.text, token.kind)):
            raise Unreadable("digits beside a box")
        if (
            before.kind == "number"
            and before.text.isdigit()
            and token.text == "frac"
            and self._improper()
        ):
            raise Unreadable("a mixed number that is none")
        return self.power()

    def _starts_factor(self) -> bool:
        token = self.peek()
        if token.kind == "op":
            return token.text == "|" and not self.bars
        if token.kind == "command":
            return token.text in ("frac", "binom", "mathcal")
        return token.kind in _STARTS and token.text != "matrix" and not self._at_modulus()

    def signed(self) -> Tree:
        signs = 0
        while self.at("op", "-", "+"):
            signs += self.take().text == "-"
        tree = self.power()
        if signs % 2 and tree[0] == "matrix":
            return _product(("number", Fraction(-1), "-1"), tree)
        return ("negative", tree) if signs % 2 else tree

    def power(self) -> Tree:
        base = self._marks(self.atom())
        while self.at("op", "^"):
            self.take()
            if self.at("command", "circ"):
                self.take()
                base = self._marks(("unit", base, "degree"))
            elif base[0] in ("matrix", "tuple") and self.peek().text.strip("{") in (
                *_TRANSPOSES,
                "",
            ):
                base = _transposed(base, self._exponent())
            else:
                base = self._marks(("power", base, self._exponent()))
        return base

    def _exponent(self) -> Tree:
        if self.at("op", "-", "+"):
            sign = self.take().text
            tree = self._exponent()
            return ("negative", tree) if sign == "-" else tree
        base = self.atom()
        if self.at("op", "^"):  # 2^3^4 is 2^(3^4)
            self.take()
            return ("power", base, self._exponent())
        return base

    def _marks(self, tree: Tree) -> Tree:
        while True:
            if self.at("op", "!", "%"):
                tree = ("factorial" if self.take().text == "!" else "percent", tree)
            elif self.at("command", "circ"):
                self.take()
                tree = ("unit", tree, "degree")
            else:
                return tree

    def atom(self) -> Tree:
        token = self.take()
        reads = {
            "number": self._number,
            "symbol": self._symbol,
            "function": self._function,
            "open": self._brackets,
        }
        if token.kind in reads:
            return reads[token.kind](token)
        if token.kind == "unit":
            return ("unit", self.power(), token.text)  # $5
        if token.kind == "command" and token.text in ("frac", "binom"):
            above = self._argument()
            below = self._argument()
            return (
                _quotient(above, below) if token.text == "frac" else ("call", "binom", above, below)
            )
        if token.kind == "command" and token.text == "mathcal":
            inner = self._argument()
            if inner[0] == "symbol":
                return ("symbol", f"mathcal {inner[1]}")
        if token.kind == "op" and token.text == "|":
            self.bars += 1
            tree = self.union()
            self._expect("op", "|")
            self.bars -= 1
            return ("call", "abs", tree, None)
        raise Unreadable(f"{token.text!r} where a number or symbol should stand")

    def _number(self, token: Token) -> Tree:
        value = value_of(token.text)
        tree = self._indexed(("number", value, token.text))
        if value.denominator == 1 and token.text.isdigit():
            part = self._fraction_ahead()
            if part is not None:
                return ("add", tree, part)
        return tree

    def _indexed(self, tree: Tree) -> Tree:
        """`1010_2` and `(1010)_2`."""
        if tree[0] != "number" or not self.at("op", "_"):
            return tree
        self.take()
        base = self._argument()
        if base[0] != "number":
            raise Unreadable("a number with an index")
        return _in_base(tree[2], base[1])

    def _improper(self) -> bool:
        """Whether a fraction of two numbers is ahead."""
        ahead = [t for t in (self.peek(k) for k in range(1, 7)) if t.text not in ("{", "}")]
        return ahead[0].kind == "number" and (ahead[1].kind == "number" or len(ahead[0].text) == 2)

    def _fraction_ahead(self) -> Tree | None:
        """The fraction of a mixed number: `1 \\frac{1}{2}`, `1 1/2`."""
        ahead = [self.peek(k) for k in range(7)]
        shape = [(t.kind, t.text if t.kind != "number" else "") for t in ahead]
        number = ("number", "")
        group = [("open", "{"), number, ("close", "}")]
        if shape == [("command", "frac"), *group, *group]:
            above = ahead[2].text
            below = ahead[5].text
            length = 7
        elif shape[:2] == [("command", "frac"), number] and len(ahead[1].text) == 2:
            above = ahead[1].text[0]
            below = ahead[1].text[1]
            length = 2
        elif shape[:3] == [number, ("op", "/"), number]:
            above = ahead[0].text
            below = ahead[2].text
            length = 3
        else:
            return None
        if not above.isdigit() or not below.isdigit() or not 0 < int(above) < int(below):
            return None
        self.i += length
        return (
            "divide",
            ("number", Fraction(int(above)), above),
            ("number", Fraction(int(below)), below),
        )

    def _symbol(self, token: Token) -> Tree:
        # f(x), u(t), I(0): one letter or number in parentheses is what a function is taken of
        argument = self.peek(1)
        called = self.at("open", "(") and self.peek(2)[:2] == ("close", ")")
        if called and argument.kind in ("symbol", "number") and token.text not in ("e", "pi", "i"):
            self.i += 3
            return ("symbol", f"{token.text}({argument.text})")
        if token.text.partition("_")[0].strip("'") in _CAPITALS and self.at("open", "("):
            start = self.i
            tree = self._brackets(self.take())
            if tree[:2] == ("tuple", "()"):
                chosen = token.text == "C" and len(tree[2]) == 2  # else a point P(1, 2)
                return ("call", "binom", *tree[2]) if chosen else tree
            self.i = start
        return _SYMBOLS.get(token.text, ("symbol", token.text))

    def _function(self, token: Token) -> Tree:
        name = token.text
        if name == "sqrt":
            extra = None
            if self.at("open", "["):
                self.take()
                extra = self.sum()
                self._expect("close", "]")
            return ("call", "sqrt", self._argument(), extra)
        index = exponent = None
        for _ in range(2):
            if self.at("op", "_") and index is None:
                self.take()
                index = self._argument()
            if self.at("op", "^") and exponent is None:
                self.take()
                exponent = self._exponent()
        bracketed = self.at("open", "(", "[", "{", "|(", "box")
        tree = self._brackets(self.take()) if bracketed else self._bare_argument()
        if (tree[0] in ("tuple", "set")) != (name in ("max", "min", "gcd", "lcm")):
            raise Unreadable(f"{name} of a {tree[0]}")
        if exponent == ("negative", ("number", Fraction(1), "1")) and name in ("sin", "cos", "tan"):
            return ("call", f"arc{name}", tree, None)
        tree = ("call", name, tree, index)
        return tree if exponent is None else ("power", tree, exponent)

    def _bare_argument(self) -> Tree:
        """`\\sin 2 t`: factors beside one another, up to a sign, a slash or another function."""
        if self.at("op", "-"):
            self.take()
            return ("negative", self._bare_argument())
        tree = self.power()
        while self._starts_factor() and self.peek().kind not in ("function", "number", "op"):
            tree = ("multiply", tree, self.power())
        return tree

    def _argument(self) -> Tree:
        """Of a command: a group in braces, or the next sign alone (`\\frac12`, `\\sqrt2`)."""
        token = self.peek()
        if token.kind == "number" and len(token.text) > 1 and token.text.isdigit():
            fraction = self.i > 1 and self.tokens[self.i - 2] == Token("command", "frac")
            if fraction or self.tokens[self.i - 1].kind == "command":
                digits = Token("number", token.text[0]), Token("number", token.text[1:])
                self.tokens = [*self.tokens[: self.i], *digits, *self.tokens[self.i + 1 :]]
        if self.at("open", "{", "(", "box"):
            return self._brackets(self.take())
        return self.signed() if self.at("op", "-") else self.atom()

    def _brackets(self, token: Token) -> Tree:
        self.depth += 1
        if self.depth > _DEPTH:
            raise Unreadable("nested too deeply")
        bars = self.bars
        self.bars = 0
        if token.text == "matrix":
            tree = self._matrix()
        elif token.text in ("floor", "ceil", "|("):
            tree = ("call", "abs" if token.text == "|(" else token.text, self.sum(), None)
            self._expect("close", _MATCHING[token.text])
        else:
            tree = self._items(token.text)
        self.bars = bars
        self.depth -= 1
        return self._indexed(tree) if token.text == "(" else tree

    def _items(self, opening: str) -> Tree:
        items: list[Tree] = []
        if not self.at("close"):
            items.append(self.chain())
            if opening in ("{", "box") and self.at("command", "over", "choose"):
                over = self.take().text == "over"
                other = self.chain()
                items = [
                    ("divide", items[0], other) if over else ("call", "binom", items[0], other)
                ]
            bar = self.at("colon") or self.at("command", "mid", "colon") or self.at("op", "|")
            if opening == "set" and bar:
                return self._condition()
            while self.at("sep", ",", ";"):
                self.take()
                items.append(self.chain())
        closing = self.take()
        if closing.kind != "close":
            raise Unreadable(f"{closing.text!r} within brackets")
        pair = opening + closing.text
        if opening in ("{", "box", "set") and closing.text != _MATCHING[opening]:
            raise Unreadable(f"brackets {pair!r} that do not match")
        if opening == "set" or (opening == "{" and len(items) > 1):
            return ("set", tuple(items))
        if len(items) == 1 and pair in ("()", "[]", "{}", "boxbox"):
            return items[0]
        if not items or pair not in ("()", "[]", "(]", "[)"):
            raise Unreadable(f"brackets {pair!r}")
        return ("tuple", pair, tuple(items))

    def _condition(self) -> Tree:
        """What x has to satisfy in `{x : x < 8}`."""
        self.take()
        condition = self.chain()
        if condition[0] != "chain":
            raise Unreadable("a set without a condition")
        self._expect("close", "set")
        return condition

    def _matrix(self) -> Tree:
        rows: list[list[Tree]] = [[]]
        while not self.at("close", "matrix"):
            rows[-1].append(self.chain())
            if self.at("word", "and"):  # the lexer's name for &
                self.take()
            elif self.at("sep", "\\"):
                self.take()
                if self.at("open", "[") and self.peek(2).kind in ("symbol", "word", "unit"):
                    while not self.at("close", "]"):  # space between rows: \\[2pt]
                        self.take()
                    self.take()
                if not self.at("close", "matrix"):
                    rows.append([])
            elif not self.at("close", "matrix"):
                raise Unreadable("a matrix that is not one")
        self.take()
        return ("matrix", tuple(map(tuple, rows)))

    def _expect(self, kind: str, text: str) -> None:
        if not self.at(kind, text):
            raise Unreadable(f"{text!r} is missing")
        self.take()


def _product(left: Tree, right: Tree) -> Tree:
    """A number before a matrix multiplies its entries."""
    if right[0] == "matrix":
        return (
            "matrix",
            tuple(tuple(("multiply", left, entry) for entry in row) for row in right[1]),
        )
    return ("multiply", left, right)


def _transposed(tree: Tree, exponent: Tree) -> Tree:
    if exponent[0] != "symbol" or exponent[1] not in _TRANSPOSES:
        raise Unreadable(f"a power of a {tree[0]}")
    return tree if tree[0] == "tuple" else ("matrix", tuple(zip(*tree[1], strict=False)))


def _quotient(above: Tree, below: Tree) -> Tree:
    """`\\frac{d x}{d t}` and `\\frac{d^2 x}{d t^2}` are one quantity, not a quotient of products."""
    quantity = _differential(above)
    variable = _differential(below)
    return (
        ("symbol", f"d{quantity}/d{variable}")
        if quantity and variable
        else ("divide", above, below)
    )


def _differential(tree: Tree) -> str | None:
    if tree[0] != "multiply":
        return None
    head = tree[1]
    name = _name(tree[2])
    if head == ("symbol", "d"):
        return name
    return name and f"{_name(head[2])} {name}" if head[:2] == ("power", ("symbol", "d")) else None


def _name(tree: Tree) -> str | None:
    if tree[0] == "power":
        base = _name(tree[1])
        exponent = _name(tree[2])
        return base and exponent and f"{base}^{exponent}"
    name: str | None = tree[1] if tree[0] == "symbol" else tree[2] if tree[0] == "number" else None
    return name


def _in_base(digits: str, base: Fraction) -> Tree:
    """`34_8` is 28, and remembers how it was written."""
    if base.denominator != 1 or not 2 <= base <= 36 or not digits.isdigit() or len(digits) > 200:
        raise Unreadable("a number with an index")
    try:
        value = int(digits, int(base))
    except ValueError:
        raise Unreadable(f"digits that base {base} does not have") from None
    return ("number", Fraction(value), str(value), (int(base), digits))
