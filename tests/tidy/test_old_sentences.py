"""Sentences of the old kind: the prose rules find them in every kind of text."""

from __future__ import annotations

import pytest

from tests.tidy.prose import PROSE_RULES, Text, texts

OLD_SENTENCES = [
    "No run is performed by two workers to an end",
    "a worker that lost its lease changes nothing and learns so",
    "Your steps cannot bear to be begun twice when a machine dies in the middle of one.",
    "a chain whose recorded steps the code no longer asks for is stopped and says so",
    "Perform the runs of a project until told to stop.",
    "Start runs, look at them, steer them.",
    "Whose runs to see.",
    "Say why a schedule or an automation ran or did not, or where a run stands.",
    "what it is about is in the wrong state for this",
    "What nobody was there to fire: run the latest, skip, or all",
    "Owe what was left out since the pause; policies decide.",
    "or the one it stumbled over",
    "What waits for a person goes on waiting",
    "Mend the module, or repeat with --debug",
    "@app.schedule stands above @app.workflow, not below it",
    "A worker is at it",
    "nobody was asked, nothing was changed",
    "no worker is on",
    "the house loop waits 0.2 s:",
    "Time, chance and identity",
    "a busy key with a long line delays no other",
    "What is no time is ignored, with a remark on the run. Left out, it is cleared.",
    "retrying and classifying are the host's",
    "Each has a folder out of which no path leads, not even through a link.",
    "what a crash tore is cut off by the next who writes",
    (
        "a provider without rates that is well costs one a second, and what another worker "
        "has met is heard of within that second"
    ),
    "Your own words win, and a model that is not there costs `None`, never nothing",
    "let it be longer than your sources go on telling of one thing",
    "Both are asked, or heard, only for executions of the schedule.",
    "An execution that somebody cancelled is nobody's news",
    "Of a long text `output` is in the result that `app.pipelines.result` returns",
    "Claims go over the line that brought the word … A broken claim takes the ear with it.",
    "Seats nobody sits on.",
    "Claims go over the line that brought the word",
    "A word brings the run it is about",
    "Starts are bold, and checks are constants",
    (
        "The same right after a word was heard, by the shortest way there is. For what keeps "
        "nobody waiting and is not cancelled: no further word is heard meanwhile"
    ),
    "A word comes by another way than the file: none is shorter",
    "A file carries no words",
    (
        "A lone start notifies in its own commit, for those before it too, unless words come "
        "thick and fast"
    ),
    (
        "Take the run a word was about, if it is still to be had. Whoever needs no line to be"
        " kept may do so"
    ),
    "A word needs no disk: it may get lost, and whoever waits for it looks anyway",
    "Somebody else has it in hand at this moment: glance again, do not stare",
    "Full hands mean there may be more; anything less means somebody will call us",
    ("Nobody is inside any more. What points in circles is let go… at a fifth of what a run costs"),
    "Chance that falls the same way at every replay",
    "the how manieth fix in a row this would be",
    "What every turn of an automation stands on, and the exceptions by which one stands still",
    "what is neither the script's nor the world's is ours",
    (
        "The line of a schedule: when one of its chains is over, the next that waits behind "
        "it goes, and those who want to be told of it will be"
    ),
    "An id that follows from what is told: no chance is needed to make it one of its kind",
    "What hardly two steps of one commit have in common",
    "Left out of the JSON, so that a default is the code's of the day it runs",
    "what it depends on is not so; it did nothing",
    "longest time for one look of a tool",
    "%s of %s was not told (%s): %s",
    "an interval must be longer than nothing",
    "limit=0 lets nothing run",
    "the scheduler goes on, but:",
    "pipeline x is good again",
    "For the doctor, who may take his time",
    "half characters",
    "Full hands mean there may be more; anything less means somebody will call us.",
    "Somebody else has it in hand at this moment: glance again, do not stare.",
    "A word needs no disk: it may get lost, and whoever waits for it looks anyway.",
    "What nobody was there to fire: run the latest, skip, or all.",
    "No run is performed by two workers to an end.",
    "the house loop waits 0.2 s",
]
# No rule finds these: each word is plain, only the thought is put oddly. A reviewer has to.
WITHOUT_RULE = [
    ("Rota runs what must run, when it must run, once, and can always say why it did or did not."),
    "`none` takes a bound away … Arguments given replace all arguments.",
    "Agree to the change that an automation's run waits with.",
    "Nothing to do: it has its result.",
    "is open in this process by Rota, with another SQLite",
    "The step's error is in the message; earlier attempts are in its history.",
    "beside a durable wait it gets five seconds before it is cut off by the suspension",
    "A failure that your code caught is part of the story and stays.",
    "as many may come at once after a rest, so one window may hold nearly twice that",
    (
        "They hold on every path: at start-up, after a resume, an edit, a backlog, … the "
        "sleep of a laptop."
    ),
    "of a row that cannot be read at all the update asks for what was lost with it",
    "The interpreter is handed over sooner",
    "a time is asked about a schedule, not about an automation",
]


def _complaints(path: str, text: str) -> list[str]:
    return [c for one in texts(path, text) for rule in PROSE_RULES.values() for c in rule(one)]


@pytest.mark.parametrize("sentence", OLD_SENTENCES)
def test_an_old_sentence_is_found(sentence: str) -> None:
    for kind in ("markdown", "docstring", "comment", "string"):
        one = Text("src/rota/a.py", 1, kind, sentence)
        assert [c for rule in PROSE_RULES.values() for c in rule(one)], kind


@pytest.mark.parametrize("sentence", OLD_SENTENCES)
def test_an_old_sentence_is_found_in_a_file(sentence: str) -> None:
    assert _complaints("docs/guides/a.md", f"# Title\n\nPlain text. {sentence}\n")


@pytest.mark.parametrize("sentence", WITHOUT_RULE)
def test_a_sentence_without_a_rule_is_named_as_such(sentence: str) -> None:
    one = Text("x", 1, "docstring", sentence)
    found = [c for rule in PROSE_RULES.values() for c in rule(one)]
    assert not found, "a rule finds it now: move it to OLD_SENTENCES"
