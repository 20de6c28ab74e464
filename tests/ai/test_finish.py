"""Why a model stopped: a closed list of words for each wire; all others are unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ai import finish
from rota.ai.finish import Finish, Words, finish_of

WIRES = [
    pytest.param(wire, id=name)
    for name, wire in vars(finish).items()
    if name.isupper() and isinstance(wire, dict)
]
wires = pytest.mark.parametrize("wire", WIRES)


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("stop", Finish.WHOLE),
        ("eos", Finish.WHOLE),
        ("length", Finish.LENGTH),
        ("model_length", Finish.LENGTH),  # Mistral: the context is full
        ("content_filter", Finish.FILTERED),
        ("RECITATION", Finish.FILTERED),  # Gemini
        ("insufficient_system_resource", Finish.INTERRUPTED),  # DeepSeek
        ("error", Finish.INTERRUPTED),  # Mistral, OpenRouter
        ("abort", Finish.INTERRUPTED),  # vLLM
        ("tool_calls", Finish.TOOLS),
        ("quantum_flux", Finish.UNKNOWN),
        ("", Finish.UNKNOWN),
        ("Stop", Finish.UNKNOWN),
    ],
)
def test_words_of_the_chat_wire(word: str, meaning: Finish) -> None:
    assert finish_of(word, finish.CHAT) is meaning


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("end_turn", Finish.WHOLE),
        ("stop_sequence", Finish.WHOLE),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("refusal", Finish.FILTERED),
        ("pause_turn", Finish.INTERRUPTED),
        ("tool_use", Finish.TOOLS),
        ("stop", Finish.UNKNOWN),  # a word of another wire
    ],
)
def test_words_of_the_messages_wire(word: str, meaning: Finish) -> None:
    assert finish_of(word, finish.MESSAGES) is meaning


@wires
def test_only_words_that_say_so_are_whole(wire: Words) -> None:
    whole = {word for word, meaning in wire.items() if meaning is Finish.WHOLE}
    listed = {"stop", "eos", "eos_token", "end_turn", "stop_sequence", "STOP", "COMPLETE"}
    assert whole
    assert whole <= listed | {"completed"}


@wires
@given(word=st.text())
def test_a_word_that_is_not_listed_is_unknown(wire: Words, word: str) -> None:
    assert word in wire or finish_of(word, wire) is Finish.UNKNOWN
