"""The fingerprint of code: equal in every process that runs the same code."""

from __future__ import annotations

import os
import subprocess
import sys

from rota.core.fingerprint import code_text

CODE = """
from rota import Rota

app = Rota()


@app.workflow
async def flow(word: str) -> bool:
    def inner(other: str) -> bool:
        return other in {"one", "two", "three", "four", "five"}

    return word in {"alpha", "beta", "gamma", "delta"} or inner(word)


mail = app.automation("mail")
topic = mail.topic("letters")


@mail.producer(publishes=[topic], every="1h")
async def read(ctx, state) -> None:
    assert state in {"alpha", "beta", "gamma", "delta"}


print(flow.version, app.automations.declared["mail"].digest())
"""


def printed(seed: int) -> str:
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_versions_of_workflows_and_automations_are_the_same_under_every_hash_seed() -> None:
    assert len({printed(seed) for seed in range(1, 6)}) == 1


def test_a_change_of_the_code_changes_its_text() -> None:
    def one(x: int) -> bool:
        return x in {1, 2}

    def two(x: int) -> bool:
        return x in {1, 3}

    assert code_text(one.__code__) != code_text(two.__code__)
