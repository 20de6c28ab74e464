"""Wrong uses. Each line says which error `mypy --strict` must give for it. Never run."""

from __future__ import annotations

from rota import Client, Rota, run_step, step, this_step
from rota.automations import Change, Context, Event, Prepared
from rota.blocking import BlockingClient
from rota.tools import tool
from rota.tools.feed import FeedRead

app = Rota()
misspelt_setting = Rota(seets=1)  # type: ignore[call-arg]


@app.workflow
async def fetch(url: str, timeout: int = 30) -> str:
    return url


@app.workflow
def plain(n: int) -> int:
    return n


@step
async def shipped(url: str) -> bytes:
    return url.encode()


async def wrong_steps() -> None:
    await shipped(3)  # type: ignore[arg-type]
    await run_step("shipped", shipped.function, 3)  # type: ignore[arg-type]
    await run_step("shipped", shipped.function, "u", retrys=3)  # type: ignore[call-arg]
    step(retrys=3)  # type: ignore[call-overload]
    text: str = await run_step("shipped", shipped.function, "u")  # type: ignore[arg-type]
    this_step().progress("half")  # type: ignore[arg-type]
    assert text


async def wrong_arguments(client: Client) -> None:
    await fetch.start(3)  # type: ignore[arg-type]
    await fetch.start("u", timeot=5)  # type: ignore[call-arg]
    await fetch.start()  # type: ignore[call-arg]
    await fetch.options(queue="slow").start(3)  # type: ignore[arg-type]
    await app.start(fetch, 3)  # type: ignore[call-overload]
    await app.start(fetch, "u", timeot=5)  # type: ignore[call-arg]
    await app.options(queue="slow").start(fetch, 3)  # type: ignore[call-overload]
    await client.start(plain, "not an int")  # type: ignore[call-overload]
    await fetch.start_many(["u"])  # type: ignore[list-item]


async def options_are_not_arguments(client: Client) -> None:
    await fetch.start("u", queue="slow")  # type: ignore[call-arg]
    await app.start(fetch, "u", external_id="o-7")  # type: ignore[call-arg]
    await app.start_many(fetch, [("u",)], queue="slow")  # type: ignore[call-overload]
    await client.options(queue="slow", url="u").start(fetch, "u")  # type: ignore[call-arg]


async def wrong_results() -> None:
    number: int = await (await fetch.start("u")).result()  # type: ignore[assignment]
    text: str = await (await app.start(plain, 1)).result()  # type: ignore[assignment]
    assert number, text


def wrong_from_sync_code(client: BlockingClient) -> None:
    client.start(plain, "not an int")  # type: ignore[call-overload]
    client.options(queu="slow")  # type: ignore[call-arg]
    client.runs.list(stat="failed")  # type: ignore[call-arg]
    text: str = client.start(plain, 1).result()  # type: ignore[assignment]
    assert text


async def misspelt_options(client: Client) -> None:
    fetch.options(external_idd="o-7")  # type: ignore[call-arg]
    app.options(queu="slow")  # type: ignore[call-arg]
    client.options(on_conflict="rejct")  # type: ignore[arg-type]
    fetch.options(priority="high")  # type: ignore[arg-type]
    app.workflow(retrys=3)  # type: ignore[call-overload]
    app.step(retrys=3)  # type: ignore[call-overload]
    app.schedule("5m", overlp="skip")  # type: ignore[call-arg]
    app.automation("mail", aproval=True)  # type: ignore[call-arg]
    app.queue("slow", seets=1)  # type: ignore[call-arg]
    await client.runs.list(stat="failed")  # type: ignore[call-arg]
    await client.schedules.create("s", fetch, "5m", overlp="skip")  # type: ignore[call-arg]
    await client.schedules.update("s", overlp="skip")  # type: ignore[call-arg]
    FeedRead("news", bass="https://example.org")  # type: ignore[call-arg]


@tool(safety="idempotent")
async def send(text: str) -> int:
    return len(text)


async def take(ctx: Context, state: object) -> Prepared:
    return Prepared()


async def two_changes(ctx: Context, prepared: Prepared) -> list[Change]:
    return [send.change(text="a"), send.change(text="b")]


def a_pair(ctx: Context, prepared: Prepared) -> tuple[Change, Change]:
    return send.change(text="a"), send.change(text="b")


def returns_both(ctx: Context, prepared: Prepared) -> Change | None:
    return send.change(text="a"), send.change(text="b")  # type: ignore[return-value]


def several_changes() -> None:
    mail = app.automation("letters")
    topic = mail.topic("mail", external=True)
    mail.consumer("a", subscribes=[topic], prepare=take, mutate=two_changes)  # type: ignore[arg-type]
    mail.consumer("b", subscribes=[topic], prepare=take, mutate=a_pair)  # type: ignore[arg-type]


@app.consumer("orders")  # type: ignore[type-var]
async def ships_two(event: Event[str]) -> list[Change]:
    return [send.change(text="a"), send.change(text="b")]


@app.consumer("refunds")  # type: ignore[type-var]
def refunds_two(event: Event[str]) -> tuple[Change, Change]:
    return send.change(text="a"), send.change(text="b")


@app.consumer("returns", skip_aftr=3)  # type: ignore[call-arg]
def misspelt(event: Event[str]) -> Change | None:
    return None
