"""The wheel and the sdist are whole: built, installed into a clean environment, they run."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

PROGRAM = """
import asyncio
from rota import Rota

app = Rota("sqlite:///rota.db")

@app.step
async def double(number: int) -> int:
    return number * 2

@app.workflow
async def quadruple(number: int) -> int:
    return await double(await double(number))

async def main() -> None:
    async with app:
        run = await app.start(quadruple, 21)
        print("result", await run.result())

asyncio.run(main())
"""


def run(*command: object, cwd: Path) -> str:
    """The output of a command that must succeed, in an environment without this checkout."""
    words = [str(word) for word in command]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built(source: Path, target: str, folder: Path) -> Path:
    """The one archive that a build of `source` leaves in `folder`."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=source)
    (archive,) = folder.iterdir()
    return archive


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("rota/")}


def shipped() -> set[str]:
    """Every file of the package in this checkout."""
    package = ROOT / "src/rota"
    found = (path for path in package.rglob("*") if path.is_file())
    names = (path.relative_to(package.parent).as_posix() for path in found)
    return {name for name in names if "__pycache__" not in name}


@pytest.mark.slow
@pytest.mark.timeout(300)  # Installs from the package registry.
def test_wheel_and_sdist_hold_the_package_and_run_a_workflow(tmp_path: Path) -> None:
    wheel = built(ROOT, "wheel", tmp_path / "wheel")
    sdist = built(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = built(unpacked, "wheel", tmp_path / "again")
    assert files_of(wheel) == files_of(again) == shipped()

    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", again, cwd=tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    assert "result 84" in run(python, "program.py", cwd=tmp_path)
    assert "quadruple" in run(
        tmp_path / "clean" / "bin" / "rota", "run", "list", "--database", "sqlite:///rota.db",
        cwd=tmp_path,
    )  # fmt: skip
