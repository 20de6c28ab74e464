"""Plain English, over the whole repository; each rule finds what is planted for it."""

from __future__ import annotations

from functools import cache

import pytest

from tests.tidy.prose import PROSE_RULES, Text, texts, wide_lines
from tests.tidy.tree import ROOT, tracked

# Made from the code: its texts are checked there. A released migration is never edited.
GENERATED = ("docs/reference/", "src/rota/store/migrations/")
# These hold the forbidden words because they forbid them.
LISTS = ("tests/tidy/", "docs/glossary.md")
FOLDERS = ("src/", "tests/", "docs/", "examples/", "scripts/", "bench/")

BAD = [
    ("plain_words", "docstring", "The worker goes on after a crash."),
    ("plain_words", "docstring", "Runs whose lease has ended."),
    ("plain_words", "comment", "Somebody else has it in hand."),
    ("plain_words", "comment", "Take the lock, else the row is lost."),
    ("plain_words", "string", "shop.db is no database"),
    ("plain_words", "markdown", "A run that crashed too often is put aside."),
    ("plain_words", "markdown", "It comes into force\nwith the next deploy."),
    ("plain_words", "comment", "else it is lost"),
    ("plain_words", "docstring", "PAYLOAD is JSON, or else a string."),
    ("plain_words", "docstring", "Perform the runs until told to stop."),
    ("plain_words", "string", "no worker is on"),
    ("plain_words", "markdown", "Every worker hears every NOTIFY."),
    ("plain_words", "docstring", "Retries are the host's."),
    ("plain_words", "docstring", "The doctor may take his time."),
    ("plain_words", "comment", "Answer those who wait."),
    ("plain_documents", "markdown", "`validate` tells them too."),
    ("plain_documents", "markdown", "The reply is asked for once more."),
    ("plain_documents", "markdown", "If the server says no, the run waits."),
    ("plain_openings", "docstring", "What a claim returns."),
    ("plain_openings", "string", "cancelling; what is done is kept"),
    ("plain_openings", "docstring", "Left out, it is cleared."),
    ("plain_openings", "comment", "Fenced by a join with the claim."),
    ("few_semicolons", "docstring", "It starts; it runs; it ends."),
    ("plain_openings", "markdown", "It waits. Where a key is given, runs take turns."),
    ("short_sentences", "docstring", "word " * 26),
    ("short_sentences", "markdown", "word " * 26),
    ("short_help", "help", "Write the text to a file, whole or not at all, but never to stdout."),
]
GOOD = [
    ("plain_words", "docstring", "The worker continues. There is no row. `whose` is a name."),
    ("plain_words", "comment", "It is no longer held, and ready for the next one."),
    ("plain_documents", "markdown", "The error says so. If you want more, ask for it."),
    ("plain_documents", "docstring", "The model is asked about each item."),
    ("plain_openings", "markdown", "Where is X? What failed?"),
    ("plain_openings", "markdown", "A page: what it shows, and where."),
    ("plain_openings", "string", "Paused by you"),
    ("few_semicolons", "docstring", "It starts; it runs. It ends; it is over."),
    ("plain_words", "comment", "Everything else continues. Branches are told apart."),
    ("short_sentences", "docstring", "word " * 20 + "end. " + "word " * 20),
    ("short_help", "help", "Write the text to a file."),
]
# The same sentence of the old kind, in each place that is read.
OLD = "Whoever holds the run goes on with it."
PLANTED = {
    "README.md": f"# Title\n\n{OLD}\n",
    "docs/guides/a.md": f"- an item\n- {OLD}\n",
    "docs/guides/b.md": f"| a | b |\n|---|---|\n| x | {OLD} |\n",
    "src/rota/a.py": f'"""{OLD}"""\n',
    "src/rota/b.py": f"# {OLD}\n",
    "src/rota/c.py": f'raise UsageError("{OLD}")\n',
    "src/rota/d.py": f'x = f"{{run}}: {OLD}"\n',
    "src/rota/store/sql/a.sql": f"-- name: a\n-- {OLD}\nselect 1\n",
    "tests/test_a.py": f'def test_a():\n    """{OLD}"""\n',
}


def _checked() -> list[str]:
    return [
        path
        for path in tracked()
        if path.startswith(FOLDERS) or "/" not in path
        if path.endswith((".md", ".py", ".sql")) and not path.startswith(GENERATED + LISTS)
    ]


@cache
def _all() -> list[Text]:
    return [
        text
        for path in _checked()
        for text in texts(path, (ROOT / path).read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("name", PROSE_RULES)
def test_the_text_keeps(name: str) -> None:
    rule = PROSE_RULES[name]
    found = [complaint for text in _all() for complaint in rule(text)]
    assert not found, f"{rule.__doc__}\n" + "\n".join(found)


def test_documents_wrap() -> None:
    # The changelog has one line an entry.
    documents = [path for path in _checked() if path.endswith(".md") and path != "CHANGELOG.md"]
    assert documents
    found = [
        complaint
        for path in documents
        for complaint in wide_lines(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("rule", "kind", "text"), BAD)
def test_a_planted_sentence_is_found(rule: str, kind: str, text: str) -> None:
    assert list(PROSE_RULES[rule](Text("x", 1, kind, text)))


@pytest.mark.parametrize(("rule", "kind", "text"), GOOD)
def test_a_plain_sentence_is_left_alone(rule: str, kind: str, text: str) -> None:
    assert not list(PROSE_RULES[rule](Text("x", 1, kind, text)))


@pytest.mark.parametrize("path", PLANTED)
def test_every_kind_of_file_is_read(path: str) -> None:
    found = [one for text in texts(path, PLANTED[path]) for one in PROSE_RULES["plain_words"](text)]
    assert len(found) == 2


def test_code_is_not_read_as_prose() -> None:
    document = "Text.\n\n```sh\nwhoever goes on\n```\n\n`whoever`\n"
    query = 'q = "select whose from runs where it stands"\n'
    for path, text in (("a.md", document), ("src/rota/a.py", query)):
        assert not [one for each in texts(path, text) for one in PROSE_RULES["plain_words"](each)]


def test_a_wide_line_is_found() -> None:
    assert list(wide_lines("a.md", "word " * 25))
    assert not list(wide_lines("a.md", "| " + "word " * 25))


def test_every_rule_is_proven() -> None:
    assert {rule for rule, _, _ in BAD} == set(PROSE_RULES)
