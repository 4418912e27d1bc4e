"""The words of the house: constructions that have to be read twice, and how long sentences are.

``docs/words.md`` is the style page; this module finds what a pattern can find. A pattern is for a construction, not for
a word: "behind" is banned because it was used for "after", "stands" and "lies" because they were used for "is".
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# A construction, and what to write in its place.
BANNED: Mapping[str, tuple[re.Pattern[str], str]] = {
    name: (re.compile(pattern, flags), instead)
    for name, pattern, flags, instead in (
        ("so many", r"\bso (many|much|long|often)\b", re.I, "name the number: 'bytes per task'"),
        ("whoever", r"\b(whoever|whatever|somebody|nobody)\b", re.I, "name who: 'a broker', 'no group'"),
        ("riddle", r"(?:^|(?<=[.:;] ))(Who|What)\b(?! to\b)[^.?!]*\.", 0, "begin with a verb"),
        ("is none", r"\b(is|are|was|were|holds|has) none\b", re.I, "'is not a store'"),
        ("is no", r"(?<!there )\b(is|are|was|were) (no|nothing) (?!longer\b|more\b|such\b)[a-z]", re.I, "'is not a'"),
        ("stands", r"\b(stands?|standing|stood)\b", re.I, "'is'"),
        ("lies", r"\b(lies?|lay|lain)\b", re.I, "'is'"),
        ("behind", r"\bbehind\b", re.I, "'after', 'past', 'lags'"),
        ("anew", r"\banew\b", re.I, "'again'"),
        ("let happen", r"\b(let|lets)\b[^.]*\bhappens?\b", re.I, "'deliver', 'run'"),
        ("what is said", r"\bwhat is (said|told|seen|there|left)\b(?!\?)", re.I, "name the thing"),
        ("be had", r"\b(be|is|are) had\b|\bto be had\b", re.I, "'restore'"),
        ("is seen", r"\b(is|are) (seen|told|said)\b", re.I, "name who sees or says it"),
        (
            "is to be",
            r"\b(is|are) (not )?to be ([a-z]+ed|done|written|found|made|known|told)\b",
            re.I,
            "'not writable'",
        ),
        ("all the same", r"\ball the same\b|\bthe way back\b|\bneeds leave\b", re.I, "'anyway', 'still'"),
        ("leads", r"\b(leads?|led) (behind|nowhere|before|to (nothing|no|the end|what))\b", re.I, "'points to'"),
        (
            "unit",
            r"\b(no|its|the queue's|queue|wrong) units?\b|\bunits? (leads?|of a queue)\b",
            re.I,
            "'queue entry'",
        ),
        ("put back", r"\bput[^.]{0,30} back\b|\bis mended\b|\bmend\b", re.I, "'restore', 'repair'"),
        ("passes over", r"\b(pass|passes|passed|step|steps|stepped) over\b", re.I, "'ignore', 'skip'"),
        ("comes up", r"\b(come|comes) up\b", re.I, "'start'"),
        ("apart from", r"\bapart from what\b", re.I, "'except for'"),
        ("needs you", r"\bneeds? you\b", re.I, "'problems found'"),
        ("puts right", r"\bputs? [^.]{0,40}\bright\b", re.I, "'repair'"),
        (
            "personification",
            r"\b(file|record|queue|index|log|store)s? (knows?|wants?|thinks?)\b",
            re.I,
            "say what it has",
        ),
        ("has not the", r"\b(has|have) not (a|an|the|this|that)\b", re.I, "'does not have'"),
    )
}

_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`\"])|\n\s*\n|(?<=:)\s*\n")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_CLAUSE = re.compile(
    r"\b(that|which|who|whose|whom|where|when|while|because|if|unless|until|although|though|since|whether|what)\b",
    re.I,
)
_FENCED = re.compile(r"^```.*?^```$|^    [^\n]*$", re.M | re.S)
_CODE = re.compile(r"``[^`]*``|`[^`]*`|\{[^{}]*\}|\"[^\"]*\"")
_LONG = 30


class Found(NamedTuple):
    """A banned construction in a text."""

    place: str
    construction: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.construction} (write {BANNED[self.construction][1]}): {self.text}"


class Readability(NamedTuple):
    """The sentences of some texts: how many, words and subordinate clauses per sentence, share of long ones."""

    sentences: int
    words: float
    clauses: float
    long: float


def find_banned(texts: Iterable[tuple[str, str]]) -> Iterator[Found]:
    """Yield the banned constructions in texts, each given with its place. Code in backticks does not count."""
    for place, text in texts:
        bare = _CODE.sub("X", text)
        for name, (pattern, _) in BANNED.items():
            if match := pattern.search(bare):
                yield Found(place, name, " ".join(bare[max(0, match.start() - 40) : match.end() + 40].split()))


def measure(texts: Iterable[tuple[str, str]]) -> Readability:
    """Return how readable texts are. Code counts as one word; sentences of one or two words do not count."""
    lengths, clauses = [], 0
    for _, text in texts:
        for sentence in _SENTENCE.split(_CODE.sub("X", text)):
            words = _WORD.findall(sentence)
            if len(words) > 2:
                lengths.append(len(words))
                clauses += len(_CLAUSE.findall(sentence))
    count = len(lengths) or 1
    return Readability(count, sum(lengths) / count, clauses / count, sum(n > _LONG for n in lengths) / count)


def strings_of(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the strings of a module that can be sentences: two words or more, no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in docs or id(node) in inner or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        text = _spelled(node)
        if len(_WORD.findall(text)) > 1:
            yield f"{path.relative_to(root)}:{node.lineno}", text


def _spelled(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def comments_of(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the docstrings and comments of a module; comment lines that follow each other are one text."""
    source = path.read_text(encoding="utf-8")
    name = path.relative_to(root)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node)
            if doc:
                yield f"{name}:{node.body[0].lineno}", doc
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != last + 1:
                yield f"{name}:{last}", " ".join(block)
                block = []
            block.append(token.string.lstrip("#: "))
            last = token.start[0]
    if block:
        yield f"{name}:{last}", " ".join(block)


def document_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the paragraphs, list items and table cells of a Markdown document, without its code."""
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    for part in re.split(r"\n\s*\n|\n(?=- |\d+\. |\|)|(?<=\|)\s*\|?", text):
        if len(_WORD.findall(part)) > 1:
            yield path.name, " ".join(part.strip("|- \n").split())
