r"""From tokens to expression trees: sums, products, powers, functions, collections, unions; by
precedence."""

from fractions import Fraction

from rpg.answers.lexer import Token, Unreadable, value_of
from rpg.answers.trees import (
    EMPTY,
    REALS,
    Bracketed,
    Call,
    Chain,
    Factorial,
    FiniteSet,
    Matrix,
    Negative,
    Numeral,
    Percent,
    PlusMinus,
    Power,
    Product,
    Quantity,
    Quotient,
    Remainder,
    Sum,
    Symbol,
    Tree,
    Union,
    Written,
)

_DEPTH = 60
_MATCHING = {"{": "}", "|(": ")|"} | {kind: kind for kind in ("set", "floor", "ceil", "box")}
_STARTS = {"number", "symbol", "function", "open"}
_CAPITALS = set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TRANSPOSES = ("T", "top", "intercal")
_SYMBOLS: dict[str, Tree] = {"emptyset": EMPTY, "varnothing": EMPTY, "mathbb R": REALS}
_END = Token("end", "")
_INVERSE = Negative(Numeral(Fraction(1), "1"))
"""The exponent of an inverse function: `sin^{-1} x`."""


def read(tokens: list[Token]) -> Tree:
    """One expression, or a chain of them. Raises Unreadable: the tokens are no formula, or nested
    too deeply."""
    parser = _Parser([t for t in tokens if t.kind != "edge"])
    tree = parser.chain()
    if parser.at("command", "over"):
        parser.take()
        tree = Quotient(tree, parser.chain())
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
        return Chain(tuple(items), tuple(relations)) if relations else items[0]

    def union(self) -> Tree:
        items = [self.sum()]
        while self.at("op", "cup"):
            self.take()
            items.append(self.sum())
        return items[0] if len(items) == 1 else Union(tuple(items))

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > _DEPTH:
            raise Unreadable("nested too deeply")
        left = self._first_term()
        while self.at("op", "+", "-", "pm", "mp"):
            sign = self.take().text
            right = self.product()
            if sign in ("-", "mp"):
                right = Negative(right)
            left = PlusMinus(left, right) if sign in ("pm", "mp") else Sum(left, right)
        while self.at("op", "mod") or self._at_modulus():
            bracket = self.take().text == "("
            if bracket:
                self.take()
            left = Remainder(left, self.sum())
            if bracket:
                self._expect("close", ")")
        self.depth -= 1
        return left

    def _first_term(self) -> Tree:
        if not self.at("op", "pm"):
            return self.product()
        self.take()
        return PlusMinus(Numeral(Fraction(0), "0"), self.product())

    def _at_modulus(self) -> bool:
        return self.at("open", "(") and self.peek(1)[:2] == ("op", "mod")

    def product(self) -> Tree:
        left = self.signed()
        while True:
            if self.at("op", "*", "/"):
                sign = self.take().text
                right = self.signed()
                left = _product(left, right) if sign == "*" else Quotient(left, right)
            elif self.at("op", ":"):
                left = self._ratio(left)
            elif self.at("unit"):
                left = Quantity(left, self.take().text)
            elif self._starts_factor() or self._starts_matrix(left):
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
            return Bracketed(":", (Quotient(left, right), Quotient(right, self.signed())))
        minutes = len(token.text) == 2 and token.text < "60"
        if isinstance(left, Numeral) and left.value < 25 and minutes:
            return Bracketed("time", (left, right))
        return Bracketed(":", (Quotient(left, right),))

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
        whole = before.kind == "number" and before.text.isdigit()
        if whole and token.text == "frac" and self._improper():
            raise Unreadable("a mixed number that is none")
        return self.power()

    def _starts_factor(self) -> bool:
        token = self.peek()
        if token.kind == "op":
            return token.text == "|" and not self.bars
        if token.kind == "command":
            return token.text in ("frac", "binom", "mathcal")
        return token.kind in _STARTS and token.text != "matrix" and not self._at_modulus()

    def _starts_matrix(self, left: Tree) -> bool:
        """Two matrices beside one another are not read."""
        return self.at("open", "matrix") and not isinstance(left, Matrix)

    def signed(self) -> Tree:
        signs = 0
        while self.at("op", "-", "+"):
            signs += self.take().text == "-"
        tree = self.power()
        if signs % 2 == 0:
            return tree
        if isinstance(tree, Matrix):
            return _product(Numeral(Fraction(-1), "-1"), tree)
        return Negative(tree)

    def power(self) -> Tree:
        base = self._marks(self.atom())
        while self.at("op", "^"):
            self.take()
            if self.at("command", "circ"):
                self.take()
                base = self._marks(Quantity(base, "degree"))
            elif isinstance(base, Matrix | Bracketed) and self._transpose_ahead():
                base = _transposed(base, self._exponent())
            else:
                base = self._marks(Power(base, self._exponent()))
        return base

    def _transpose_ahead(self) -> bool:
        """Or a group, whose inside `_transposed` looks at."""
        mark = self.peek().text.strip("{")
        return not mark or mark in _TRANSPOSES

    def _exponent(self) -> Tree:
        if self.at("op", "-", "+"):
            sign = self.take().text
            tree = self._exponent()
            return Negative(tree) if sign == "-" else tree
        base = self.atom()
        if self.at("op", "^"):  # 2^3^4 is 2^(3^4)
            self.take()
            return Power(base, self._exponent())
        return base

    def _marks(self, tree: Tree) -> Tree:
        while True:
            if self.at("op", "!", "%"):
                tree = Factorial(tree) if self.take().text == "!" else Percent(tree)
            elif self.at("command", "circ"):
                self.take()
                tree = Quantity(tree, "degree")
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
            return Quantity(self.power(), token.text)  # $5
        if token.kind == "command":
            tree = self._command(token)
            if tree is not None:
                return tree
        if token.kind == "op" and token.text == "|":
            self.bars += 1
            inner = self.union()
            self._expect("op", "|")
            self.bars -= 1
            return Call("abs", inner)
        raise Unreadable(f"{token.text!r} where a number or symbol should stand")

    def _command(self, token: Token) -> Tree | None:
        if token.text == "frac":
            above = self._argument()
            return _quotient(above, self._argument())
        if token.text == "binom":
            above = self._argument()
            return Call("binom", above, self._argument())
        if token.text == "mathcal":
            inner = self._argument()
            if isinstance(inner, Symbol):
                return Symbol(f"mathcal {inner.name}")
        return None

    def _number(self, token: Token) -> Tree:
        value = value_of(token.text)
        tree = self._indexed(Numeral(value, token.text))
        if value.denominator == 1 and token.text.isdigit():
            part = self._fraction_ahead()
            if part is not None:
                return Sum(tree, part)
        return tree

    def _indexed(self, tree: Tree) -> Tree:
        """`1010_2` and `(1010)_2`."""
        if not isinstance(tree, Numeral) or not self.at("op", "_"):
            return tree
        self.take()
        base = self._argument()
        if not isinstance(base, Numeral):
            raise Unreadable("a number with an index")
        return _in_base(tree.text, base.value)

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
        return Quotient(Numeral(Fraction(int(above)), above), Numeral(Fraction(int(below)), below))

    def _symbol(self, token: Token) -> Tree:
        # f(x), u(t), I(0): one letter or number in parentheses is what a function is taken of
        argument = self.peek(1)
        called = self.at("open", "(") and self.peek(2)[:2] == ("close", ")")
        if called and argument.kind in ("symbol", "number") and token.text not in ("e", "pi", "i"):
            self.i += 3
            return Symbol(f"{token.text}({argument.text})")
        if token.text.partition("_")[0].strip("'") in _CAPITALS and self.at("open", "("):
            start = self.i
            tree = self._brackets(self.take())
            match tree:
                case Bracketed("()", (n, k)) if token.text == "C":
                    return Call("binom", n, k)
                case Bracketed("()", _):  # a point P(1, 2)
                    return tree
            self.i = start
        return _SYMBOLS.get(token.text, Symbol(token.text))

    def _function(self, token: Token) -> Tree:
        name = token.text
        if name == "sqrt":
            return self._square_root()
        index, exponent = self._index_and_exponent()
        bracketed = self.at("open", "(", "[", "{", "|(", "box")
        argument = self._brackets(self.take()) if bracketed else self._bare_argument()
        several = isinstance(argument, Bracketed | FiniteSet)
        if several != (name in ("max", "min", "gcd", "lcm")):
            raise Unreadable(f"{name} of a {argument.kind}")
        if exponent == _INVERSE and name in ("sin", "cos", "tan"):
            return Call(f"arc{name}", argument)
        call = Call(name, argument, index)
        return call if exponent is None else Power(call, exponent)

    def _square_root(self) -> Tree:
        degree = None
        if self.at("open", "["):
            self.take()
            degree = self.sum()
            self._expect("close", "]")
        return Call("sqrt", self._argument(), degree)

    def _index_and_exponent(self) -> tuple[Tree | None, Tree | None]:
        """Of a function, in either order."""
        index: Tree | None = None
        exponent: Tree | None = None
        for _ in range(2):
            if self.at("op", "_") and index is None:
                self.take()
                index = self._argument()
            if self.at("op", "^") and exponent is None:
                self.take()
                exponent = self._exponent()
        return index, exponent

    def _bare_argument(self) -> Tree:
        """`\\sin 2 t`: factors beside one another, up to a sign, a slash or another function."""
        if self.at("op", "-"):
            self.take()
            return Negative(self._bare_argument())
        tree = self.power()
        while self._starts_factor() and self.peek().kind not in ("function", "number", "op"):
            tree = Product(tree, self.power())
        return tree

    def _argument(self) -> Tree:
        """Of a command: a group in braces, or the next sign alone (`\\frac12`, `\\sqrt2`)."""
        token = self.peek()
        if token.kind == "number" and len(token.text) > 1 and token.text.isdigit():
            is_denominator = self.i > 1 and self.tokens[self.i - 2] == Token("command", "frac")
            if is_denominator or self.tokens[self.i - 1].kind == "command":
                first = Token("number", token.text[0])
                rest = Token("number", token.text[1:])
                self.tokens = self.tokens.copy()
                self.tokens[self.i : self.i + 1] = [first, rest]
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
            tree = Call("abs" if token.text == "|(" else token.text, self.sum())
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
                above = items[0]
                below = self.chain()
                items = [Quotient(above, below) if over else Call("binom", above, below)]
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
            return FiniteSet(tuple(items))
        if len(items) == 1 and pair in ("()", "[]", "{}", "boxbox"):
            return items[0]
        if not items or pair not in ("()", "[]", "(]", "[)"):
            raise Unreadable(f"brackets {pair!r}")
        return Bracketed(pair, tuple(items))

    def _condition(self) -> Tree:
        """What x has to satisfy in `{x : x < 8}`."""
        self.take()
        condition = self.chain()
        if not isinstance(condition, Chain):
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
        return Matrix(tuple(tuple(row) for row in rows))

    def _expect(self, kind: str, text: str) -> None:
        if not self.at(kind, text):
            raise Unreadable(f"{text!r} is missing")
        self.take()


def _product(left: Tree, right: Tree) -> Tree:
    """A number before a matrix multiplies its entries."""
    if isinstance(right, Matrix):
        return Matrix(tuple(tuple(Product(left, entry) for entry in row) for row in right.rows))
    return Product(left, right)


def _transposed(tree: Matrix | Bracketed, exponent: Tree) -> Tree:
    if not isinstance(exponent, Symbol) or exponent.name not in _TRANSPOSES:
        raise Unreadable(f"a power of a {tree.kind}")
    return Matrix(tuple(zip(*tree.rows, strict=False))) if isinstance(tree, Matrix) else tree


def _quotient(above: Tree, below: Tree) -> Tree:
    """`\\frac{d x}{d t}` and `\\frac{d^2 x}{d t^2}` are one quantity, not a quotient of
    products."""
    quantity = _differential(above)
    variable = _differential(below)
    if quantity and variable:
        return Symbol(f"d{quantity}/d{variable}")
    return Quotient(above, below)


def _differential(tree: Tree) -> str | None:
    """`x` of `d x`, `2 x` of `d^2 x`; None for anything else."""
    if not isinstance(tree, Product):
        return None
    name = _name(tree.right)
    match tree.left:
        case Symbol("d"):
            return name
        case Power(Symbol("d"), order):
            return name and f"{_name(order)} {name}"
    return None


def _name(tree: Tree) -> str | None:
    match tree:
        case Symbol(name):
            return name
        case Numeral(text=text):
            return text
        case Power(base, exponent):
            name_of_base = _name(base)
            name_of_exponent = _name(exponent)
            if name_of_base and name_of_exponent:
                return f"{name_of_base}^{name_of_exponent}"
    return None


def _in_base(digits: str, base: Fraction) -> Tree:
    """`34_8` is 28, and remembers how it was written."""
    if base.denominator != 1 or not 2 <= base <= 36 or not digits.isdigit() or len(digits) > 200:
        raise Unreadable("a number with an index")
    try:
        value = int(digits, int(base))
    except ValueError:
        raise Unreadable(f"digits that base {base} does not have") from None
    return Numeral(Fraction(value), str(value), Written(int(base), digits))
