"""How many tokens a text will be, without the vocabulary of any model: a guess on the high side.

Vocabularies are large, differ by model, and are not worth a package for an estimate.
"""

from __future__ import annotations

ASCII_CHARS = 4  # to a token, in English prose and code
FRAME = 8  # what a provider puts around the messages
FRAME_MAX = 64  # the same, with room to spare


def estimate(text: str) -> int:
    """Tokens of a text; letters outside of ASCII are often a token each."""
    if text.isascii():
        return -(-len(text) // ASCII_CHARS)
    plain = sum(letter < "\x80" for letter in text)
    return -(-plain // ASCII_CHARS) + len(text) - plain
