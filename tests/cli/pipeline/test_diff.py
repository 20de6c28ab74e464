"""`rota pipeline diff`: what changed between two runs, and the exit code for a CI job."""

from __future__ import annotations

from pathlib import Path

from tests.cli.kit.pipelines import document, made, rota


def runs(folder: Path) -> tuple[str, str]:
    """Two runs of a pipeline: b has another prompt in the second one, c is gone, d is new."""
    made(folder, ["a", "b", "c"])
    rota("run", "words", "--ai", "ai.yaml")
    text = (folder / "words" / "pipeline.yaml").read_text()
    items = '"items": [{"word": "d"}, {"word": "b", "more": "!"}, {"word": "a"}]'
    text = text.replace('"items": [{"word": "a"}, {"word": "b"}, {"word": "c"}]', items)
    assert items in text
    text = text.replace("{{word}}", "{{word}} {{more}}")
    text = text.replace('"name": "Words"', '"name": "Words", "parameters": {"more": ""}')
    (folder / "words" / "pipeline.yaml").write_text(text)
    rota("run", "words", "--ai", "ai.yaml")
    newest, before = document("history", "words")
    return str(before["run"]), str(newest["run"])


def test_answers_are_compared_by_a_key(folder: Path) -> None:
    first, second = runs(folder)
    found = document("diff", "words", first, second, "--key", "word", code=1)
    assert (found["same"], found["changed"], found["added"], found["removed"]) == (1, 1, 1, 1)
    assert [(each["change"], each["key"]) for each in found["items"]] == [
        ("added", "d"), ("changed", "b"), ("removed", "c"),
    ]  # fmt: skip
    assert found["items"][1]["after"]["text"].startswith("said b !")
    said = rota("diff", "words", first, second, "--key", "word", code=1)
    assert [line[0] for line in said.stdout.splitlines()] == ["+", "~", "-"]
    assert "1 same, 1 changed" in said.stderr


def test_without_a_key_whole_items_belong_together(folder: Path) -> None:
    first, second = runs(folder)
    found = document("diff", "words", first, second, code=1)
    assert (found["same"], found["changed"], found["added"], found["removed"]) == (1, 0, 2, 2)


def test_a_run_is_the_same_as_itself_whatever_it_cost(folder: Path) -> None:
    first, _ = runs(folder)
    assert document("diff", "words", first, first)["items"] == []


def test_a_key_that_is_not_there_or_not_unique_is_refused(folder: Path) -> None:
    first, second = runs(folder)
    said = rota("diff", "words", first, second, "--key", "wrod", code=2).stderr
    assert "has no field wrod: it has word" in said
    made(folder, ["a", "a"])
    rota("run", "words", "--ai", "ai.yaml")
    third = str(document("history", "words")[0]["run"])
    said = rota("diff", "words", third, third, "--key", "word", code=2).stderr
    assert "more than one item with word a" in said
    assert document("diff", "words", third, third)["same"] == 2
