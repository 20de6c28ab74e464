"""Executes a program as the code of a workflow, and notes what that code sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import rota
from rota import this_run
from rota.errors import RotaError, RunFailed, StepFailed
from tests.simulation.kit.operations import SIGNALS, Op
from tests.simulation.kit.program_app import Oops, ProgramApp, spoken
from tests.simulation.kit.trace import Event

Operation = Callable[["Interpreter", Op], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {}


def operation(function: Operation) -> Operation:
    """Make a function the meaning of the operations of its name."""
    OPERATIONS[function.__name__] = function
    return function


class Interpreter:
    """One execution of the code of a run."""

    def __init__(self, app: ProgramApp) -> None:
        self.app = app
        self.steps = app.steps
        self.run_id = this_run().root_id
        life = app.life
        self.execution = app.book.begin(self.run_id, life.number, happens=not life.is_over)

    async def run(self, program: Op) -> list[str]:
        """The program of a run: what it saw is its result."""
        holder = asyncio.create_task(self.steps.hold()) if self.app.held else None
        try:
            await self.do(program)
        except asyncio.CancelledError:
            # anyio does not know its own cancellation again after `asyncio.gather`.
            if this_run().is_cancelled:
                raise
            self.see(program, "ended by its own cancellation")
        except Exception as error:
            self.see(program, f"ended by {type(error).__name__}", _text(error))
            if program.arg % 2 and not self.app.life.is_over:
                self.app.book.raised[self.run_id] = type(error).__name__
            if program.arg % 2:
                raise
        finally:
            if holder is not None:
                holder.cancel()
        return [str(event) for event in self.execution.events]

    async def do(self, op: Op) -> object:
        """Execute an operation."""
        return await OPERATIONS[op.kind](self, op)

    def see(self, op: Op, what: object, detail: object = "") -> object:
        """Note what the code has seen. Code of a run that is over sees nothing any more."""
        if not (this_run().is_cancelled or self.app.life.is_over):
            self.execution.add(Event(op.n, str(what), str(detail)))
        return what

    def seen(self, op: Op) -> tuple[int, int, int, int]:
        """The arguments of an effect."""
        if not self.app.by_digest:
            return op.n, 0, 0, op.us
        return op.n, len(self.execution.events), self.execution.digest, op.us

    def see_error(self, op: Op, error: BaseException) -> object:
        """Note an error. A program makes no mistakes in its use of Rota."""
        self.see(op, *shown(error))
        if isinstance(error, RotaError) and not isinstance(error, StepFailed | RunFailed):
            self.app.book.problems.append(f"{op.n} {op.kind}: {error!r}")
        return None

    def see_end(self, op: Op, task: asyncio.Future[Any]) -> object:
        """Note how a task ended."""
        if task.cancelled():
            self.see(op, "cancelled")
        elif (error := task.exception()) is not None:
            self.see_error(op, error)
        else:
            self.see(op, task.result())
        return None

    async def do_all(self, op: Op) -> object:
        """Execute the parts, one after the other."""
        for part in op.parts:
            await self.do(part)
        return None

    async def effect(self, op: Op) -> object:
        """A step, in the name of an operation that is made of more."""
        return await self.steps.step(*self.seen(op))


def shown(error: BaseException) -> tuple[str, str]:
    """An error as user code sees it: its type, and the types of its causes."""
    names = []
    one: BaseException | None = error
    while one is not None:
        names.append(type(one).__name__)
        one = one.__cause__
    text = " from ".join(names)
    if isinstance(error, BaseExceptionGroup):
        text += f" of ({', '.join(shown(inner)[0] for inner in error.exceptions)})"
    return text, _text(error)


def _text(error: BaseException) -> str:
    facts = error.facts if isinstance(error, RotaError) else ""
    return f"{error} {facts}"


def seconds(us: int) -> float:
    """A duration for asyncio."""
    return us / 1e6


# -- durable calls -----------------------------------------------------------------------------


@operation
async def step(it: Interpreter, op: Op) -> object:
    value = await it.steps.step(*it.seen(op))
    it.see(op, value)
    return value


@operation
async def sync(it: Interpreter, op: Op) -> object:
    value = await it.steps.sync.aio(*it.seen(op))
    it.see(op, value)
    return value


@operation
async def flaky(it: Interpreter, op: Op) -> object:
    value = await it.steps.flaky(*it.seen(op), op.arg)
    it.see(op, value)
    return value


@operation
async def failing(it: Interpreter, op: Op) -> object:
    return await it.steps.failing(*it.seen(op), op.arg)


@operation
async def closing(it: Interpreter, op: Op) -> object:
    value = await it.steps.closing(*it.seen(op), op.arg * 300_007)
    it.see(op, value)
    return value


@operation
async def late(it: Interpreter, op: Op) -> object:
    value = await it.steps.late(*it.seen(op))
    it.see(op, value)
    return value


@operation
async def sleep(it: Interpreter, op: Op) -> object:
    await rota.sleep(seconds(op.us))
    return it.see(op, "slept")


@operation
async def asyncio_sleep(it: Interpreter, op: Op) -> object:
    return it.see(op, await asyncio.sleep(seconds(op.us), "slept"))


@operation
async def signal(it: Interpreter, op: Op) -> object:
    return it.see(op, "signal", await rota.wait_for(SIGNALS[op.arg % 2]))


@operation
async def signal_or_timeout(it: Interpreter, op: Op) -> object:
    name = SIGNALS[op.arg % 2]
    return it.see(op, "signal", await rota.wait_for(name, timeout=seconds(op.us)))


@operation
async def now(it: Interpreter, op: Op) -> object:
    return it.see(op, "now", await rota.now())


@operation
async def random(it: Interpreter, op: Op) -> object:
    return it.see(op, "random", rota.random())


@operation
async def uuid(it: Interpreter, op: Op) -> object:
    return it.see(op, "uuid", rota.uuid())


@operation
async def patched(it: Interpreter, op: Op) -> object:
    name = f"change {op.arg}"
    answer = await rota.patched(name) if op.us % 2 else bool(rota.patched(name))
    return it.see(op, f"patched {answer}")


@operation
async def loop_time(it: Interpreter, op: Op) -> object:
    return it.see(op, "time", asyncio.get_running_loop().time())


@operation
async def child(it: Interpreter, op: Op) -> object:
    value = await it.app.workflow(op.parts[0].n)
    return it.see(op, "child", value)


@operation
async def started_child(it: Interpreter, op: Op) -> object:
    handle = await it.app.workflow.start(op.parts[0].n)
    it.see(op, "started", handle.id)
    await it.effect(op)
    return it.see(op, "child", await handle.result())


@operation
async def children(it: Interpreter, op: Op) -> object:
    handles = await it.app.workflow.start_many([(part.n,) for part in op.parts])
    results = await rota.gather(*(handle.result() for handle in handles))
    return it.see(op, "children", results)


# -- no durable call ---------------------------------------------------------------------------


@operation
async def yields(it: Interpreter, op: Op) -> object:
    for _ in range(op.arg + 1):
        await asyncio.sleep(0)
    return it.see(op, "yielded")


@operation
async def plain_tasks(it: Interpreter, op: Op) -> object:
    async def plain(number: int) -> int:
        for _ in range(number % 3):
            await asyncio.sleep(0)
        it.see(op, f"plain {number}")
        return number

    done, _ = await asyncio.wait([asyncio.create_task(plain(n)) for n in range(op.arg + 2)])
    return it.see(op, "done", [task.result() for task in done])  # the order of a set


@operation
async def context(it: Interpreter, op: Op) -> object:
    it.see(op, spoken.get())
    await it.effect(op)
    it.see(op, spoken.get())
    spoken.set(f"code {op.n}")
    await asyncio.create_task(asyncio.sleep(0))
    return it.see(op, spoken.get())


@operation
async def raising(it: Interpreter, op: Op) -> object:
    raise Oops(f"raised {op.n}")


@operation
async def catch(it: Interpreter, op: Op) -> object:
    try:
        return await it.do(op.parts[0])
    except Exception as error:
        return it.see_error(op, error)
