"""Plain English: forbidden words, openings and lengths of sentences, the width of lines.

Reads Markdown outside of code, and in Python the docstrings, the comments and, under src, the
strings that are sentences (errors, hints, help). docs/glossary.md has the words to use.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from typing import NamedTuple

COLUMNS_MAX = 100
HELP_MAX = 60
WORDS_MAX = 25
# Decisions are history: their sentences may be longer.
WORDS_MAX_IN_RECORDS = 40

# Expression → what to write instead. Case is ignored.
FORBIDDEN = {
    r"mend(s|ed|ing)?": "fix, repair",
    r"anew": "again",
    r"who(m)?(so)?ever": "name the worker, the caller or the operator",
    r"whose": "with, of which; or begin another sentence",
    r"(some|no|every|any)body('s)?": "name the worker, the caller or the operator",
    r"(tell|tells|told|telling) of": "report",
    r"(is|are|was|were|be|been) (not )?told(?! apart)": "is notified, gets, receives",
    r"stands?|stood": "is",
    r"(go|goes|went|going|gone) on": "continue",
    r"(new)?born|births?": "created, inserted",
    r"call(s|ed|ing)? off": "cancel",
    r"c[oa]mes? into force": "takes effect",
    r"at hand": "available",
    r"in turns": "interleaved",
    r"also when": "even if",
    r"(?<!there )(is|are|was) no(?= (?!longer|more|less|fewer|later|earlier|one))": "is not a",
    r"how manieth": "the number of",
    r"left out": "skipped, omitted",
    r"(put|puts|putting) aside": "quarantined",
    r"seats?|seated": "slot",
    r"ears?|mouths?|heirs?|hungry|purses?|shelf|shelves|desks?|notebooks?|rosters?": "the glossary",
    r"told(?! apart)|hears?|heard|learns? so": "is notified, gets, learns that",
    r"perform(s|ed|ing)?": "execute, run",
    r"steer(s|ed|ing)?": "manage, control",
    r"(by )?chance": "random, random numbers",
    r"in hand|full hands|is at it": "held, claimed, executing",
    r"(workers?|hosts?|process(es)?) (is|are|was|were) on(?=[.,;:]|$)": "is running",
    r"(one|a|each|every|first|next|last|another|per) look": "poll, check, read",
    r"(glances?|stares?|stumbl(e|es|ed)|bears? to|in circles|thick and fast)": "a plain verb",
    r"to an end|to be had|of its kind|is good again": "the exact state",
    r"(no other|not so)(?=[.,;:]|$)": "name it",
    r"(longer than|never|lets?) nothing": "zero, more than zero",
    r"half characters?": "lone surrogates",
    r"(house|keeping) loop": "maintenance loop",
    r"(those|one|next|others?) who": "name the worker, the caller or the operator",
    r"(he|him|his|she|hers?)": "name the worker, the caller or the operator",
    r"(is|are|was|were) (ours|yours|theirs|(the )?\w+'s(?=[ .,;:]+(nor|and|to)\b|[.,;:]|$))": "of",
    r"(or|may|might|would|could|must) else": "otherwise",
    r"words? (brings?|comes?|came|wins?|about|was|were)": "a notification; an option",
    r"(carr(y|ies)|brings?|brought|last|lost|own|without a|worth a) (the |no )?words?": "silently",
    r"lone(?! surrogate)|(is|are) bold(?=,)": "single, optimistic",
    r"out of which|to whom|by whom|with whom": "begin another sentence",
}
# In documents, a program reports, shows or refuses. It has no voice and no wishes.
FORBIDDEN_IN_DOCUMENTS = {
    r"tells?|telling": "report, show, name",
    r"says? (yes|no)": "accept, refuse",
    r"(is|are|was|were|be|been) asked": "name the call: Rota calls, checks, requests",
    r"wants|lets? go of": "needs; releases",
    r"once more|ever (more|less)|for ever": "again; less and less; forever",
    r"in vain": "without success",
    r"looks? after": "runs, checks, owns",
}
_WORDS = re.compile("|".join(rf"\b(?:{each})(?!\w)" for each in FORBIDDEN), re.IGNORECASE)
_DOCUMENT_WORDS = re.compile(
    "|".join(rf"\b(?:{each})(?!\w)" for each in FORBIDDEN_IN_DOCUMENTS), re.IGNORECASE
)
_ELSE = re.compile(r"[,;] else\b(?! if)|\Aelse\b(?! if)")
_OPENING = re.compile(r"(?:What|Whoever|Of|Where)\b(?!.*\?$)", re.DOTALL)
# A clause as the subject of another: "what is done is kept", "where a key is given, runs wait".
_FINITE = (
    r"(?:is|are|was|were|has|have|had|can|may|must|does|did|will|would|cannot|stays?|wins?"
    r"|counts?|comes?|goes|went|takes?|gets?|begins?|belongs?|leads?|makes?|costs?|holds?|needs?)"
)
_CLAUSE = re.compile(
    rf"(?:what|where)\b(?:(?!,? and\b|,? or\b).)*?\b{_FINITE}\b"
    rf"(?:(?!,? and\b|,? or\b).)*?\b{_FINITE}\b(?!.*\?$)",
    re.DOTALL,
)
_PARTICIPLE = re.compile(
    r"(?:Left|Given|Taken|Seen|Kept|Written|Made|Held|Sent|Read|Found|Put|Done|Said|Known"
    r"|[A-Z][a-z]{2,}ed)(?:, (?:it|they|the|a)\b| (?:out|by|in|at|on|when|with|once|from|to|after"
    r"|before|as|for|only|until|if|while|beside|because|so|not|of)\b)"
)

_CODE = re.compile(r"```.*?```|``.*?``|`[^`]*`", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?:;])\**\s+|\n\s*\n|\n\s*[-*] ")
_FULL_STOP = re.compile(r"(?<=[.!?])\**\s+|\n\s*\n|\n\s*[-*] ")
_ITEM = re.compile(r"^(?:[#>]+|[-*]|\d+\.) ")
_TABLE_IN_TEXT = re.compile(r"\S {3,}\S|[├└│]|^\s*[a-z_]+: |^\s*- ", re.MULTILINE)
_SQL = re.compile(r"\bselect\b.*\bfrom\b|\binsert into\b|^\s*(?:update|delete|create)\b", re.DOTALL)


class Text(NamedTuple):
    """A paragraph, a cell, a comment or a string; `kind` says which rules hold for it."""

    path: str
    line: int
    kind: str  # markdown, docstring, comment, string, help
    text: str

    def at(self, complaint: str) -> str:
        return f"{self.path}:{self.line}: {complaint}"


ProseRule = Callable[[Text], Iterator[str]]


def plain_words(text: Text) -> Iterator[str]:
    """The field has a plain word for each of these."""
    said = _without_code(text.text)
    for found in [*_WORDS.finditer(said), *_ELSE.finditer(said)]:
        yield text.at(f"{found.group()!r}: write {_instead(found.group())}")


def plain_documents(text: Text) -> Iterator[str]:
    """Documents describe what a program does, not what it says or wants."""
    if text.kind != "markdown" or text.path.startswith("src/"):  # heads of generated pages
        return
    for found in _DOCUMENT_WORDS.finditer(_without_code(text.text)):
        yield text.at(f"{found.group()!r}: write {_instead(found.group(), FORBIDDEN_IN_DOCUMENTS)}")


def plain_openings(text: Text) -> Iterator[str]:
    """A sentence begins with its subject. A question may begin with What or Where."""
    for sentence in _sentences(text.text):
        is_label = text.kind in {"string", "help"}  # "Paused by you" is a label, not a sentence.
        rules = (_OPENING, _CLAUSE) if is_label else (_OPENING, _CLAUSE, _PARTICIPLE)
        if any(rule.match(sentence) for rule in rules):
            yield text.at(f"{sentence[:60]!r}: begin with the subject")


def few_semicolons(text: Text) -> Iterator[str]:
    """One idea a sentence: at most one semicolon."""
    if text.kind == "string":  # Header fields and cookies are full of them.
        return
    for sentence in _FULL_STOP.split(_without_code(text.text)):
        if sentence.count(";") > 1:
            yield text.at(f"{sentence.strip()[:60]!r}: more than one semicolon")


def short_sentences(text: Text) -> Iterator[str]:
    """One idea a sentence."""
    is_record = text.path.startswith("docs/decisions/")
    most = WORDS_MAX_IN_RECORDS if is_record else WORDS_MAX
    for sentence in _sentences(text.text):
        if (words := len(sentence.split())) > most:
            yield text.at(f"{words} words, at most {most}: {sentence[:60]!r}")


def short_help(text: Text) -> Iterator[str]:
    """Help of an option fits into a column."""
    if text.kind == "help" and len(text.text) > HELP_MAX:
        yield text.at(f"{len(text.text)} characters, at most {HELP_MAX}: {text.text!r}")


_RULES = (
    plain_words, plain_documents, plain_openings, few_semicolons, short_sentences, short_help,
)  # fmt: skip
PROSE_RULES: dict[str, ProseRule] = {rule.__name__: rule for rule in _RULES}


def wide_lines(path: str, text: str) -> Iterator[str]:
    """Lines of documents wrap, so that a diff can be read. Tables, code and addresses may not."""
    is_code = False
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_free = is_code or line.lstrip().startswith("|") or line.startswith("    ")
        if len(line) > COLUMNS_MAX and not is_free and " " in line.strip():
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"


def texts(path: str, text: str) -> Iterator[Text]:
    """All prose of a file."""
    if path.endswith(".md"):
        yield from _markdown(path, text)
    elif path.endswith(".sql"):
        yield from _sql_comments(path, text)
    elif path.endswith(".py"):
        yield from _docstrings_and_strings(path, text)
        yield from _comments(path, text)


def _instead(found: str, words: dict[str, str] = FORBIDDEN) -> str:
    for expression, better in words.items():
        if re.match(rf"(?:{expression})(?!\w)", found, re.IGNORECASE):
            return better
    return "otherwise"


def _without_code(text: str) -> str:
    return _LINK.sub(r"\1", _CODE.sub("X", text))


def _sentences(text: str) -> list[str]:
    plain = _without_code(text).replace("**", "")
    return [sentence.strip() for sentence in _END.split(plain) if sentence.strip()]


def _markdown(path: str, text: str) -> Iterator[Text]:
    """Paragraphs, list items, headings and cells, outside of fenced code."""
    block: list[str] = []
    start, is_code = 1, False
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        content = line.strip()
        is_fence = content.startswith(("```", "~~~"))
        if block and (not content or is_fence or content.startswith("|") or _ITEM.match(content)):
            yield Text(path, start, "markdown", "\n".join(block))
            block = []
        is_code ^= is_fence
        is_indented = not block and line.startswith("    ")
        if is_code or is_fence or is_indented or not content:
            continue
        if content.startswith("|"):
            cells = (cell.strip(" -:") for cell in content.strip("|").split("|"))
            yield from (Text(path, number, "markdown", cell) for cell in cells if cell)
            continue
        start = start if block else number
        block.append(_ITEM.sub("", content, count=1))


def _sql_comments(path: str, text: str) -> Iterator[Text]:
    block: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        content = line.strip()
        if content.startswith("-- ") and not content.startswith("-- name:"):
            block.append(content[3:])
        elif block:
            yield Text(path, number - len(block), "comment", "\n".join(block))
            block = []


def _docstrings_and_strings(path: str, text: str) -> Iterator[Text]:
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    owners = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docs = {id(n.body[0].value) for n in nodes if isinstance(n, owners) and _documented(n)}  # type: ignore[attr-defined]
    helps = {
        id(k.value) for n in nodes if isinstance(n, ast.Call) for k in n.keywords if k.arg == "help"
    }
    inside = {id(part) for n in nodes if isinstance(n, ast.JoinedStr) for part in n.values}
    for node in nodes:
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in inside:
            continue
        said = _string(node)
        if id(node) in docs:
            for paragraph in said.strip().split("\n\n"):
                if not _TABLE_IN_TEXT.search(paragraph):
                    yield Text(path, node.lineno, "docstring", paragraph)
        elif path.startswith("src/") and _is_sentence(said):
            if said.lstrip().startswith("#"):
                yield from (one._replace(line=node.lineno) for one in _markdown(path, said))
            else:
                kind = "help" if id(node) in helps and "/cli/" in path else "string"
                yield Text(path, node.lineno, kind, said)


def _documented(node: ast.AST) -> bool:
    return ast.get_docstring(node, clean=False) is not None  # type: ignore[arg-type]


def _string(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
    return node.value if isinstance(node.value, str) else ""


def _is_sentence(said: str) -> bool:
    return len(re.findall(r"[A-Za-z]{2,}", said)) >= 3 and " " in said and not _SQL.search(said)


def _comments(path: str, text: str) -> Iterator[Text]:
    """Comments; lines of comment below each other are one."""
    block: list[str] = []
    start = last = 0
    was_alone = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, is_alone = token.start[0], token.line.lstrip().startswith("#")
        if block and not (is_alone and was_alone and line == last + 1):
            yield Text(path, start, "comment", "\n".join(block))
            block = []
        start = start if block else line
        block.append(token.string.lstrip("# "))
        last, was_alone = line, is_alone
    if block:
        yield Text(path, start, "comment", "\n".join(block))
