"""Detects a blocked event loop, from a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rota.core.process_metrics import WORKFLOW_BLOCKS
from rota.core.runs.model import WorkflowBlock
from rota.engine.clock import Clock

log = logging.getLogger("rota.watchdog")

_PACKAGE = str(Path(__file__).parent.parent)


# Code of a workflow that executes for longer without a wait is named.
BLOCK_S = 1.0
_LOOK_S = BLOCK_S / 4
# Workflows of which the last block is kept.
BLOCKS_MAX = 20


class CodeInProgress(NamedTuple):
    """Code of a workflow that executes at this moment. Each time it is another number."""

    number: int
    name: str
    run_id: str
    namespace: str


class Watchdog:
    """A thread that expects regular callbacks from the loop, and logs where it is blocked. `code`
    is the code of a workflow that executes, if any does."""

    def __init__(
        self,
        stuck_s: float,
        clock: Clock,
        code: Callable[[], CodeInProgress | None] = lambda: None,
    ) -> None:
        self._stuck_s = stuck_s
        self._clock = clock
        self._code = code
        self._blocks: dict[str, WorkflowBlock] = {}  # by workflow, the oldest first
        self._number = self._looks = 0
        self._seen = time.monotonic()
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._reported = False

    def start(self) -> None:
        """Watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._seen = time.monotonic()
        threading.Thread(target=self._watch, name="rota-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()

    def stuck_for_s(self) -> float:
        """Seconds since the loop should have responded; 0 while it responds."""
        silent = time.monotonic() - self._seen
        return silent if silent > self._stuck_s else 0.0

    def blocks(self) -> list[WorkflowBlock]:
        """The workflows that have blocked the loop since the start, the oldest first."""
        return list(self._blocks.values())

    def _sign(self) -> None:
        self._seen = time.monotonic()
        self._reported = False

    def _watch(self) -> None:
        sign_s, slept_s = self._stuck_s / 4, 0.0
        look_s = min(sign_s, _LOOK_S)
        while not self._stop.wait(look_s):
            self._look()
            slept_s += look_s
            if slept_s < sign_s:
                continue
            slept_s = 0.0
            try:
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._sign)
            except RuntimeError:  # the loop is closed
                return
            if self.stuck_for_s() and not self._reported:
                self._reported = True
                log.error(
                    "the event loop has been blocked for %.0f s; leases are not renewed meanwhile. "
                    "Blocking code belongs in a sync step (it runs in a thread). It hangs at:\n%s",
                    self.stuck_for_s(),
                    self._where(),
                )

    def _look(self) -> None:
        """Name a workflow with code that does not let the loop continue."""
        code = self._code()
        if code is None or code.number != self._number:
            self._number, self._looks = (0 if code is None else code.number), 0
            return
        self._looks += 1
        if self._looks * _LOOK_S == BLOCK_S:
            WORKFLOW_BLOCKS.add(code.namespace, code.name)
            stack = self._stack()
            self._note_block(code, stack)
            log.warning(
                "workflow %s (run %s) has blocked its worker for %.0f s; no other run continues "
                "meanwhile. Call blocking code in a sync step (it runs in a thread). It is at:\n%s",
                code.name, code.run_id, BLOCK_S, _text(stack),
            )  # fmt: skip

    def _note_block(self, code: CodeInProgress, stack: list[traceback.FrameSummary]) -> None:
        line = f"{stack[0].filename}:{stack[0].lineno}" if stack else "an unknown line"
        before = self._blocks.get(code.name)
        count = 1 if before is None else before.count + 1
        # A new dict: the event loop may read the one before at this moment.
        blocks = {name: one for name, one in self._blocks.items() if name != code.name}
        blocks[code.name] = WorkflowBlock(code.name, code.run_id, line, self._clock.now(), count)
        self._blocks = dict(list(blocks.items())[-BLOCKS_MAX:])

    def _where(self) -> str:
        return _text(self._stack())

    def _stack(self) -> list[traceback.FrameSummary]:
        """The lines at which the loop is, from the first line of user code on: the frames above it
        belong to Rota and asyncio."""
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return []
        stack = traceback.extract_stack(frame)
        begin = max((n for n, one in enumerate(stack, 1) if _PACKAGE in one.filename), default=0)
        return stack[begin:] or stack


def _text(stack: list[traceback.FrameSummary]) -> str:
    return "".join(traceback.format_list(stack)) or "(unknown)"
