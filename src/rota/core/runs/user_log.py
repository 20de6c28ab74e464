"""The log records of user code that belong to a run, and their text. Pure."""

from __future__ import annotations

from rota.core.runs.stored_errors import own_frames

WARNING = 30  # of `logging`
# These libraries log every request with its whole URL, keys included.
LOUD = ("uvicorn", "httpx", "httpx2", "httpcore", "httpcore2")
_OWN = "rota"


def is_kept(logger: str, level: int) -> bool:
    """Whether a record is one of user code: not of Rota itself, nor of a library that logs URLs."""
    root = logger.partition(".")[0]
    return root != _OWN and (root not in LOUD or level >= WARNING)


def with_trace(message: str, trace: str) -> str:
    """A message and the traceback below it, without the frames of Rota."""
    return "\n".join([message, *own_frames(trace)]) if trace else message
