"""Errors of user code that would end the process or the event loop: only the call fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rota.errors import CodeExit

T = TypeVar("T")


def in_its_thread(function: Callable[[], T]) -> T:
    """Call user code in a thread. No future can carry a StopIteration, and in a thread no
    KeyboardInterrupt comes from the keyboard."""
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error
    except Exception:
        raise
    except BaseException as error:
        raise exit_of(error) from error


def exit_of(error: BaseException) -> CodeExit:
    """The error of a call that raised what would end the process or the event loop."""
    said = f": {error}" if str(error) else ""
    return CodeExit(f"the code raised {type(error).__name__}{said}")
