"""Where in a response its answer stands, and what that answer says once its typesetting is gone.
Pure text."""

import re
from collections.abc import Set

from rpg.answers import formulas, lexicon, typesetting

_ANSWER = re.compile(
    r"(?P<open>[*_]{0,3})(?P<tag><)?answer(?(tag)>|[ \t*_]*[:：])[ \t]*(?P<after>[*_]*)[ \t]*",
    re.IGNORECASE,
)


def answer_line(response: str, boxed: bool = False) -> tuple[str | None, bool]:
    r"""The answer that follows the last `Answer:` or `<answer>` (any case, bold or not), and
    whether a line break ends it.

    The recipe of the paper (App. H) asks for the answer on a last line of its own; as in its
    released verifier, an answer on the line below the marker counts too. A formula that begins
    there (`\[`, `$$`) is read to its end, and with it lines that go on with the answer (a list, `or
    6`). What the response states further down (`the answer is`, a box) is put behind the answer;
    where it takes the answer back (`Wait`), only that counts. None without a marker. `boxed`: one
    box in the answer is read as `boxed_answer` reads it, and one far behind the marker counts
    instead.
    """
    response = _own_turns(response)
    markers = list(_ANSWER.finditer(response))
    if not markers:
        return None, False
    last = markers[-1]
    if boxed and response.rfind("\\boxed{") > last.end() + 500:
        return None, False
    tail = response[last.end() :]
    tail = _QUOTED.sub("", tail).lstrip(" \t\n\r:")
    if tail.startswith("}") and _IN_TEXT.search(response, max(0, last.start() - 30), last.start()):
        tail = tail[1:].lstrip(" *_:")
    end = tail.find("</answer>") if last["tag"] else -1
    if end < 0:
        end = _answer_end(tail)
    answer = tail[:end].strip()
    if bool(last["open"]) != bool(last["after"]):  # else the emphasis of the marker is closed
        mark = re.escape(last["open"] or last["after"])
        answer = re.sub(rf"(?<=\S){mark}(?![\w({{\\])", "", answer, count=1).rstrip()
    answer = _BULLET.sub(lambda mark: ", " if mark.start() else "", answer)
    called = _CALLED.search(response, max(0, last.start() - 100), last.start())
    named = frozenset[str]()
    value = ""
    boxes = typesetting.boxes(answer) if boxed else []
    if len(boxes) == 1:
        answer = formulas.words_outside(answer)
        boxes = typesetting.boxes(answer)
        before = answer[: boxes[0].begin]
        earlier = _named(response[: last.start()])
        leading = set(words(before))
        known = leading <= earlier | lexicon.SUBJECT or not lexicon.STATING.isdisjoint(leading)
        if known and len(_SENTENCE_END.split(before.strip())) < 2:
            named = earlier
            value = boxes[0].of(answer)
            answer = _stated(_before(before), value, answer[boxes[0].end + 1 :], named)
    if (
        called
        and not set(words(called[0])) <= _NAMES
        and not (named and _is_prose(words(called[0])))
    ):
        answer = f"{called[0]} answer: {answer}"
    behind = _GOES_BEYOND.split(tail[end:], maxsplit=1)[0] if named else tail[end:]
    return _finally(answer, behind, named, value), end < len(tail)


def _answer_end(tail: str) -> int:
    """Where the answer ends that begins a text: with its line, or where that leads on."""
    end = _line_end(tail, 0)
    while end < len(tail) and _LEADS_ON.search(tail, max(0, end - 40), end):
        end = _line_end(tail, len(tail) - len(tail[end:].lstrip()))
    end = _formula_end(tail, end)
    while match := _GOES_ON.match(tail, end):
        end = _formula_end(tail, _line_end(tail, match.end()))
    return end


def _own_turns(response: str) -> str:
    """The response without another speaker's turn that the model goes on with."""
    while turns := list(_TURN.finditer(response)):
        last = turns[-1]
        if last["role"].lower() in _OWN_ROLES or not response[: last.start()].strip():
            return response
        response = response[: last.start()]
    return response


_TURN = re.compile(
    rf"(?:{lexicon.END_TOKENS})\s*(?P<role>user|human|system|tool|ipython|observation|assistant|model|gpt)\b",
    re.IGNORECASE,
)
_OWN_ROLES = frozenset({"assistant", "model", "gpt"})
_NAMES = lexicon.SUBJECT | lexicon.RETRACTING | lexicon.NUMBERED
_CALLED = re.compile(r"[^\n.!?:;|>,*#<]*\Z")
"""What the answer is called, before the marker: `final`; an `initial` one is not known to be it."""
_BULLET = re.compile(r"(?:^|\s*\n)[ \t]*[-*+\u2022][ \t]+(?=\$|\\[(\[]|\\boxed|\*\*)")
"""The mark of a list item, before a formula: no sign of it."""
_IN_TEXT = re.compile(r"\\(?:text|textbf|mathbf|mathrm)\s*\{[^{}]{0,20}$")
_QUOTED = re.compile(r"^[ \t\r]*\n\s*[>*](?=\s)|^\s*```\w*\s*\n")
_LEADS_ON = re.compile(r":[ \t*_]*$")
_GOES_ON = re.compile(
    r"\n\s*\(?(?:or|alternatively)\b|\n[ \t]*(?=[-*+\u2022][ \t]|\(?\d{1,2}[.)][ \t]"  # a list
    r"|and\b|(?:[$-]*\d[\d.,]*\$?|\$[^$\n]+\$)[ \t.]*(?:\n|$))",
    re.IGNORECASE,
)


def _finally(line: str, behind: str, named: Set[str] = frozenset(), value: str = "") -> str:
    """What is stated in the end: the answer line and the statements behind it, or only those after
    a sentence that takes it back or is not known to be harmless. Where nothing is stated after that
    one, the reader finds it.
    """
    first, *more = _TAKES_BACK.split(line) if len(line) < 2 * _BEHIND else [line]
    beginning = _TYPESET.sub("", line[:_WORDED])
    worded = not _formal(beginning)
    line_words = set(words(beginning)) if worded else set()
    stated = [first]
    unclear = ""
    for sentence in [*more, *_sentences(behind)]:
        said = words(sentence)
        if _CHECK.match(sentence) and not lexicon.CONFIRMING.isdisjoint(said) and _is_prose(said):
            continue
        if value and _SOUND.search(sentence) and _is_prose(words(_SOUND.sub("", sentence)), {"or"}):
            continue
        if value and sentence.count(value) == 1 and _restates(sentence, value, named):
            continue
        if _formal(sentence):
            corrected = _corrected(sentence)
            stated = [corrected] if corrected else [*stated, sentence]
        elif (
            worded
            and set(said) - line_words <= lexicon.SUBJECT
            and not lexicon.is_harmless(said, worded)
        ):
            stated.append(sentence)
        elif not lexicon.is_harmless(
            said, worded, named if _is_prose(said, lexicon.DESCRIBING) else ()
        ):
            stated = []
            unclear = sentence
    return ". ".join(list(dict.fromkeys(stated)) or [first, unclear])


def _restates(sentence: str, value: str, named: Set[str]) -> bool:
    """Whether a sentence states the value of a box again, with words that lead to it or say what it
    is of."""
    before, behind = sentence.replace("**", "").split(value)
    apart = (
        not _formal(before.rstrip("$(\\["))
        and before[-1:] in " $("
        and not re.match(r"\w|[.,]\d|[\^_}]", behind)
    )
    return apart and not (_lead(before.rstrip("$(\\[")) + _without_prose(behind, named)).strip(
        " .$\\)]"
    )


def _corrected(sentence: str) -> str | None:
    """What a sentence states that takes another statement back (`Wait, it should be 43`); None for
    any other."""
    words_only = re.split(r"[\d$\\]", sentence, maxsplit=1)[0]
    end = max(words_only.rfind(sign) for sign in ",:;—–-") + 1
    before = sentence[:end]
    stated = sentence[end:]
    retraction, correction = (set(words(part)) - lexicon.REASONING for part in (before, stated))
    takes_back = retraction or correction or words(before) == ["no"]
    if (
        not takes_back
        or not retraction <= lexicon.RETRACTING
        or not correction <= lexicon.CORRECTING
    ):
        return None
    lead, *formula = re.split(r"(?=[\d$\\])", stated, maxsplit=1)
    return _WORD.sub(lambda word: "" if word[0].lower() in correction else word[0], lead) + "".join(
        formula
    )


_CHECK = re.compile(
    r"(?:(?:we|you) can|to) "
    r"(?:check|verify|confirm)|check(?:ing)?\b|verif|.*\b(?:confirms|as it must)\b",
    re.IGNORECASE,
)
_SOUND = re.compile(r"\bno (?:\w+ )?(?:errors?|mistakes?)\b", re.IGNORECASE)
_TYPESET = re.compile(r"\\(?:text\w*|boxed|fbox|math\w+)|\$")
_TAKES_BACK = re.compile(
    r"(?<=[.!?;…])\s+(?=(?:wait|no|actually|hmm+|oops|sorry|correction|scratch|i mean)\b)",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?<![\\\w])[^\W\d_]+(?:['’-][^\W\d_]+)*(?!\w)")
_FORMULA = re.compile(r"\$[^$]*\$|\\\(.*?\\\)|\\\[.*?\\\]|\\\w+(?:\{[^{}]*\})*")
_MARKS = f" \t.,;:!()[]{{}}*_#>|`\"'’“”-–—…=~\ufe0f\r{lexicon.MARKS}"
"""Signs that say nothing in a sentence without a formula."""
_STRUCTURE = re.compile(
    rf"{lexicon.END_TOKENS}|</?\w{{1,10}}\s*/?>|^\s*```\w*|\bQ\.\s?E\.\s?D\b\.?|\\(?:blacksquare|square|qed|Box)(?![a-z])"
    r"|^(?:\\[\])]|\$|\\\\|\\end\{\w{1,20}\*?\}|[ .])+$"
    rf"|\b(?:{'|'.join(lexicon.NUMBERED)}) \(?\d{{1,3}}(?:\.\d{{1,3}})*\)?(?=[\s.,;:)]|$)"
    r"|^\s*(?:[-*+>\u2022#]+|\d{1,2}[.)])\s",
    re.IGNORECASE | re.MULTILINE,
)
_NAMED_AFTER = re.compile(
    r"\b[A-Z][\w-]+(?:['’]s)?(?=(?: \w+)? "
    r"(?:theorem|formula|inequality|lemma|identit|principle|law|rule|method|criteri))"
)
_ASIDE = re.compile(
    r"\b(?:with|where|using) \$?[a-zA-Z] ?= ?-?[\d.]+\$?|\$\d+ ?(?:[<>]|\\[lg]e[q]?) ?\d+\$"
)
"""`with $p = 7$`, `$1 < 2$`: no statement."""
_DISPLAYED = re.compile(
    r"\\\[.{0,900}?\\\]|\$\$.{0,900}?\$\$|\\begin\{.{0,900}?\\end\{\w+\*?\}", re.DOTALL
)
_LEADS_TO_DISPLAY = re.compile(r"(?<=[\w,:])[ \t*_]*\n\s*(?=\\\[|\$|\\boxed)")
_SENTENCE_END = re.compile(r"\n+|(?<=[.!?])(?<![\d)}]!)(?:\\\)|[*_)$])*\s+")


def _sentences(text: str) -> list[str]:
    """What follows an answer, without marks of structure and end-of-text tokens."""
    text = text if len(text) < 2 * _BEHIND else f"{text[:_BEHIND]}\nomitted\n{text[-_BEHIND:]}"
    text = _DISPLAYED.sub(lambda m: m[0].replace("\n", " "), text)
    text = _LEADS_TO_DISPLAY.sub(" ", text)
    text = _ASIDE.sub("", _NAMED_AFTER.sub("", _STRUCTURE.sub(" ", text)))
    return [part.strip(" \t*_") for part in _SENTENCE_END.split(text) if part.strip(_MARKS)]


_DISPLAY_END = re.compile(r"\.\s*(?:\\\]|\$\$|\\end\{\w+\*?\})")
_BEHIND = 1_500
_WORDED = 300
"""Characters of an answer that say whether it is a word."""


def words(sentence: str) -> list[str]:
    """In lower case, those outside of formulas."""
    sentence = _TEXT.sub(r" \1 ", sentence)
    for _ in range(4):  # braces within braces
        sentence = _FORMULA.sub(" ", sentence)
    return [match[0].lower().replace("’", "'") for match in _WORD.finditer(sentence)]


def _formal(text: str) -> bool:
    """Whether a text has more than words and marks."""
    question = "?" if _WORD.search(text) and "you" in words(text) else ""
    return bool(_WORD.sub("", text).strip(_MARKS + question))


_FORMULAS = (("\\[", "\\]"), ("$$", "$$"), ("\\(", "\\)"), ("\\begin{", "\\end{"))
_FORMULA_CHARACTERS = 4_000


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _formula_end(text: str, end: int) -> int:
    """The end of the line on which a formula ends that is open at `end`; `end` itself where none
    is."""
    for opening, closing in _FORMULAS:
        if opening == closing:
            is_open = text.count(opening, 0, end) % 2 == 1
        else:
            start = text.rfind(opening, 0, end)
            is_open = start >= 0 and text.find(closing, start, end) < 0
        if is_open:
            close = text.find(closing, end, end + _FORMULA_CHARACTERS)
            return end if close < 0 else _line_end(text, close)
    dollar = text[:end].strip() == "$"
    if dollar or text.rfind("boxed{", 0, end) > text.rfind("}", 0, end):
        close = text.find("$" if dollar else "}", end, end + _FORMULA_CHARACTERS)
        return end if close < 0 else _line_end(text, close)
    return end


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` whose braces close, else None."""
    boxes = typesetting.boxes(text)
    return max(boxes).of(text) if boxes else None


def boxed_answer(text: str) -> str | None:
    r"""What a response without an answer line states in its last `\boxed{...}`: the formula around
    it, up to a relation, with other boxes of its line; what takes it back counts as on an answer
    line. None without a box.
    """
    text = formulas.words_outside(_own_turns(text))
    boxes = sorted(typesetting.boxes(text))
    if not boxes:
        return None
    last = boxes[-1]
    start = last.begin
    earlier = []
    # Alternatives, or parts of one answer: as what stands between the boxes says.
    joint = " and "
    for box in reversed(boxes[:-1]):
        if box.end < start and _JOINS.fullmatch(text, box.end + 1, start):
            if _OR.search(text, box.end + 1, start):
                joint = " or "
            start = box.begin
            if box.of(text) != last.of(text):
                earlier.append(rf"\boxed{{{box.of(text)}}}")
    behind = _FINAL_LINE.sub("\n", _GOES_BEYOND.split(text[last.end + 1 :], maxsplit=1)[0])
    end = _line_end(behind, 0)
    named = _named(text[:start])
    before = _before(text[max(0, start - 2 * _BEHIND) : start])
    content = _stated(before, last.of(text), behind[:end], named, alone=not earlier)
    return _finally(
        joint.join([*dict.fromkeys(earlier), content]), behind[end:], named, last.of(text)
    )


def _stated(before: str, value: str, behind: str, named: Set[str], alone: bool = True) -> str:
    """What a sentence states that has a value in a box: the formula, without words that only lead
    to it or say of what."""
    before = _COMMAND.sub(r"\g<0>{}", before)
    formula = _formula_before(before) if alone else ""
    behind = _without_prose(_BOLD_END.sub(r"\1", behind), named)
    lead = _lead(_STEP.sub("", before[: len(before) - len(formula)]))
    formula = formula.replace("{}", "") if formula.strip("{} ") else ""
    whole = f"{lead}{'$' * (before.count('$') % 2)}{formula}\\boxed{{{value}}}{behind}"
    return whole if (lead + formula + behind).strip(" \t.$\\)]") else value


def _formula_before(before: str) -> str:
    """What stands before a box and belongs to its value: back to a relation, a comma or a word, or
    all of its formula where the comma parts it from another value."""
    opened = ""
    if before.count("$") % 2:
        opened = before.rpartition("$")[2]
    elif opening := _OPEN_FORMULA.search(before):
        opened = opening[1]
    opened = _ROW_END.split(opened)[-1]
    if _BESIDE.search(opened):
        return opened
    return _BEFORE_BOX.split(before)[-1].strip("*")


def _named(earlier: str) -> frozenset[str]:
    """The words and numbers that a response has used."""
    return frozenset(words(earlier[-4 * _BEHIND :]) + _NUMERAL.findall(earlier[-4 * _BEHIND :]))


def _without_prose(behind: str, named: Set[str]) -> str:
    """What stands behind a box in its sentence, without words that only say what the value is of:
    `of the parts are defective`, or what the response has named before the box. Units stay."""
    match = _PROSE.match(behind)
    said = match["words"] if match else ""
    first = next((word for word in _WORD.finditer(said) if word[0].lower() not in _UNITS), None)
    if not match or not first or first[0].lower() == "and":
        return behind
    of_what = words(said[first.start() :])
    numbers = _NUMERAL.findall(said)
    another = numbers and (
        not lexicon.COMPARING.isdisjoint(of_what) or _ANOTHER_NUMBER.search(said)
    )
    limits = (lexicon.PHRASES | lexicon.CHANGING) & set(of_what) - named
    if another or limits or not set(numbers) <= named or not _is_prose(of_what, lexicon.COMPARING):
        return behind
    topical = first[0].lower() in named - lexicon.COPULAS - lexicon.PREPOSITIONS
    known = set(of_what) <= named | lexicon.LINKING and not set(of_what) <= lexicon.BEHIND
    left_out = topical or known or _OF_WHAT.match(said, first.start())
    return (
        behind[: match.start("words") + first.start()].rstrip() + behind[match.end() :]
        if left_out
        else behind
    )


def _before(text: str) -> str:
    """The sentence in which a box stands, up to the box: also what leads to it on the lines above
    its own or its display."""
    opening = max(text.rfind(r"\["), text.rfind(r"\begin{"))
    if text.count("$$") % 2:
        opening = max(opening, text.rfind("$$"))
    if opening < 0 or any(closing in text[opening:] for closing in (r"\]", r"\end{")):
        opening = len(text)
    above = text[:opening]
    display = re.sub(r"\A\$\$", r"\\[", text[opening:]).replace("\n", " ")
    before = _DISPLAY_END.split(_SENTENCE_END.split(above)[-1] + display)[-1]
    led_to = above[:-400] + _OPENS.sub("", above[-400:])
    if led_to.rpartition("\n")[2].count("$") % 2:
        led_to += "$"
    gap = above[len(led_to) :]
    if "\n" in gap and led_to and led_to[-1] not in ".!?":
        sentence = _SENTENCE_END.split(led_to)[-1]
        led = re.split(r"[$\\\d\])}]", sentence)[-1]
        if words(led)[-1:] in (["and"], ["or"]):
            led = sentence
        leads = led_to[-1] in ":," or set(words(led)[-1:]) & (lexicon.STATING | lexicon.LEADING)
        if words(led) and (leads or "\n\n" not in gap):
            before = f"{led} {before}"
    return _BULLET.sub("", before)


def _lead(before: str) -> str:
    """The words that lead to a box in its clause: none where none of them denies, doubts or bounds
    a value, and all of the sentence, marked as unclear, where one may or another value stands
    beside the box. Before the clause (`since ...,`, `..., so`) nothing may doubt or suppose.
    """
    related = before.rstrip("{ $").endswith("=")
    before = _ENVIRONMENT.sub(" ", before).removesuffix("$$")
    if before.count("$") % 2:
        before = before[: before.rindex("$")]
    before = re.sub(
        r"(?:\\[(\[]|\\begin)(?!.*(?:\\[)\]]|\\end)).*|</?\w{1,10}>", "", before, flags=re.DOTALL
    )
    sentence = _FORMULA.sub(" # ", _TEXT.sub(r"\1", before))
    start = max((match.end() for match in _CLAUSE.finditer(sentence)), default=0)
    premise = words(sentence[:start])
    clause = sentence[start:]
    main = _RELATIVE.split(clause, maxsplit=1)[0]
    another = _STATED_BEFORE.search(main) or (not related and _VALUE_BESIDE.search(sentence))
    unsure = _UNCERTAIN.search(sentence[:start])
    if another or unsure or not lexicon.SUPPOSING.isdisjoint(premise) or _LABEL.search(before):
        return f"{before} ? "
    said = words(_MODAL.sub("", clause))
    rounded = set(said[1:][-1:]) & lexicon.APPROXIMATE
    said = said[: len(said) - len(rounded)]
    states = max((i for i, word in enumerate(said) if word in lexicon.STATING), default=0)
    of_what = next(
        (i for i, word in enumerate(said[:states]) if word in lexicon.RELATIVES | {"of"}), states
    )
    subject = (
        [word for word in said[:of_what] if word not in lexicon.DESCRIBING] if states else said
    )
    spoilt = set(said[of_what:states]) & lexicon.SPOILING - lexicon.DESCRIBED or _ONE_OF.search(
        main
    )
    spoilt = spoilt or _CHANGED.search(clause)
    if len(said) > 1 and not spoilt and _is_prose(subject + said[states:]):
        return "approximately " if rounded else ""
    harmless = _LEADING_TO_A_BOX.issuperset(said)
    return re.split(r"\\[)\]]?|[$\d,;:}#]", clause)[-1] if harmless else f"{before} ? "


def _is_prose(said: list[str], harmless: Set[str] = frozenset()) -> bool:
    """Whether none of these words, whatever the others are, is known to deny, doubt, bound or take
    back a value."""
    doubting = lexicon.DOUBTING - harmless
    return not any(word.endswith("n't") or word.partition("'")[0] in doubting for word in said)


_PROSE = re.compile(
    r"[\s$\\)\]%*,]*(?P<words>[^\W\d_]+(?:[ "
    r",'’()-]+(?:[^\W\d_]+|\d[\d.,]*(?<=\d)))*)(?=[.!*]|\s*\Z)"
)
"""Words, commas and numbers behind a box, up to the end of its sentence."""
_NUMERAL = re.compile(r"\d+(?:[.,]\d+)*")
_ANOTHER_NUMBER = re.compile(
    r"\A\D*(?:\b(?:and|plus|minus|times|is|are|out of)|,)\s*\d|\d(?![\d.,]* [^\W\d_]{2})"
)
"""One that stands beside the value, or counts nothing."""
_GOES_BEYOND = re.compile(
    r"(?:[^\n.!?]{0,80}\b(?:[Pp]ython|code)\b[^\n]{0,80}\n\s{0,9})?```|\\end\{(?:document|assistant|user)\}"
)
"""Where what the model adds to its response begins: code, the next turn."""
_STEP = re.compile(r"\A\W*(?:step|thought) \d+\W*[:.]\W*(?=\w|\Z)", re.IGNORECASE)
_BOLD_END = re.compile(r"\A([\s$\\)\]]*)\*\*")
_FINAL_LINE = re.compile(r"\s#{3,}\s")
"""GSM8K's mark of a final answer."""
_UNITS = (lexicon.UNIT_WORDS | lexicon.UNITS | {"percent"}) - {"in", "as", "at"}
_OF_WHAT = re.compile(
    r"(?:of|together|again|each|every|in all|in total|long|wide|high|deep|tall|is "
    r"(?:therefore |thus )?the|which is the)\b"
    rf"|(?:such \w+ )?(?:at|in|on|for) (?:{'|'.join(sorted(lexicon.DETERMINERS))})\b"
)
_ENVIRONMENT = re.compile(r"\\begin\{(\w+\*?)\}.*?\\end\{\1\}", re.DOTALL)
_CLAUSE = re.compile(
    rf"(?:^|[,;:.#])\s*(?:and\s+)?(?:{'|'.join(lexicon.CONCLUDING)}|then)\b,?"
    r"|^\W*(?:since|because|as|\w+ing)\b.*,(?:\s+and\b)?"
    r"|\b(?:means|find|see|know|follows|implies|shows) that\b"
    r"|,\s*(?:which|and (?:that|this|it))(?= "
    r"(?:reduces|simplifies|equals|evaluates|amounts)\b)|\bin other words,?",
    re.IGNORECASE | re.DOTALL,
)
"""What stands before a clause of its own."""
_VALUE_BESIDE = re.compile(r"[#\d][\s,;]*(?:\band\s*)?\Z")
_STATED_BEFORE = re.compile(rf"\b(?:{'|'.join(sorted(lexicon.STATING))}) +[#\d]")
_RELATIVE = re.compile(r"\b(?:that|which|when|where|who|such)\b")
_UNCERTAIN = re.compile(
    r"\b(?:not|never|cannot|no|hardly)\b.*\b(?:certain|check\w*|verif\w*|pro(?:of|ve[dn]?)|valid|know[ns]?|confirm\w*|justif\w*)\b",
    re.IGNORECASE,
)
"""A premise that denies that what follows was made sure."""
_CHANGED = re.compile(
    rf"\b(?:at least|at (?:the )?most|(?:{'|'.join(lexicon.CHANGING)})(?: [\d#]+)?(?: of| "
    r"the| from)*)[\s$*(\\]*\Z",
    re.IGNORECASE,
)
_MODAL = re.compile(r"\bshould\b(?! be\b)|\bwould\b(?! (?:be|say|have)\b)")
_ONE_OF = re.compile(r"\b(?:one|kind|sort) of\b", re.IGNORECASE)
_LEADING_TO_A_BOX = (lexicon.SUBJECT | lexicon.EXPLAINING | lexicon.REASONS | {"when", "over"}) - {
    "for"
}
_LABEL = re.compile(r"\d\s*:\s*$|\bclaim\s*:")
_TEXT = re.compile(r"\\(?:text\w*|mathrm|mbox)\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\(?:(?:neq?|[lg]eq?|lt|gt)(?![a-z])|[A-Za-z]+(?=\s))")
"""The end of a command is not that of a word: `2 \\cdot \\boxed{5}`, or of a relation that states.
"""
_SPACE = r"(?:\s|\\[,;:!> ]|\\q?quad(?![a-z])(?:\{\})?|~)"
_BESIDE = re.compile(
    rf"(?:(?:\d|(?<![a-zA-Z\\])[a-zA-Z]|[)}}\]]){_SPACE}{{0,9}}[,;]"
    rf"|\\boxed\{{[^{{}}]*\}}{_SPACE}{{0,9}}(?:[:&]|\\&)){_SPACE}{{0,9}}\Z"
)
"""Another value, before the box and in its own formula."""
_OPEN_FORMULA = re.compile(r"\\[(\[]((?:(?!\\[()\[\]]).)*)\Z", re.DOTALL)
_ROW_END = re.compile(r"\\\\(?![a-z])")
_JOINS = re.compile(
    rf"(?:[$,;]|\\[)\]]|{_SPACE}){{0,12}}"
    r"(?:for (?:part|case|question) \(?\w{1,3}\)?[\s,;]{0,3})?"
    rf"(?:or|and|[-*+\u2022](?=\s))?(?:\$|\\[(\[]|{_SPACE}){{0,12}}(?:\w{{1,9}}\s?=\s?)?"
)
_OR = re.compile(r"\bor\b")
_OPENS = re.compile(r"(?:\s|\\\[|\$|\\\(|[*_]{1,3}|[-+\u2022](?=\s)|\\begin\{\w+\*?\})*\Z")
_BEFORE_BOX = re.compile(
    r"\$|\\[\[\](\)]|\\\\|[&=,:;]|\\(?:approx|equiv|implies|Rightarrow|to|therefore|quad|qquad|text)|\s(?=[A-Za-z])|[A-Za-z.]{2}\s"
)
