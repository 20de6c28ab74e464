"""File tools hold on to the folder they opened: a link that is put into the way between the look
at a path and its use leads nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.errors import NotSent, Rejected
from rota.tools import FileAppend, FileList, FileRead, FileWrite, Tool, Unknown
from rota.tools.paths import Folder
from tests.tools.kit import CALL

Swap = Callable[[], None]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of the tools, and one outside of it with a file of the same name."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (root / "sub" / "a.txt").write_text("inside\n")
    (outside / "a.txt").write_text("private\n")
    return root, outside


def swap_folder(root: Path, outside: Path) -> None:
    """The folder on the way becomes a link that leads out."""
    (root / "sub").rename(root / "old")
    (root / "sub").symlink_to(outside)


def swap_file(root: Path, outside: Path) -> None:
    """The file itself becomes one."""
    (root / "sub" / "a.txt").unlink()
    (root / "sub" / "a.txt").symlink_to(outside / "a.txt")


def swapping(monkeypatch: pytest.MonkeyPatch, swap: Swap) -> None:
    """Swap right after the tool has looked at the path for the last time."""
    path_of = Folder.path_of

    def looked(self: Folder, path: str) -> Path:
        found = path_of(self, path)
        looks.append(path)
        if len(looks) == 2:  # once to check the parameters, once to execute
            swap()
        return found

    looks: list[str] = []
    monkeypatch.setattr(Folder, "path_of", looked)


CASES: dict[str, tuple[Callable[[Path], Tool], dict[str, Any]]] = {
    "write": (FileWrite, {"path": "sub/a.txt", "text": "new"}),
    "create": (FileWrite, {"path": "sub/a.txt", "text": "new", "mode": "create"}),
    "append": (FileAppend, {"path": "sub/a.txt", "text": "new"}),
    "read": (FileRead, {"path": "sub/a.txt"}),
}


@pytest.mark.parametrize("swap", [swap_folder, swap_file])
@pytest.mark.parametrize("case", CASES)
async def test_a_link_that_appears_after_the_check_does_not_lead_out(
    folders: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    swap: Callable[[Path, Path], None],
) -> None:
    root, outside = folders
    make, params = CASES[case]
    tool = make(root)
    swapping(monkeypatch, lambda: swap(root, outside))
    try:
        result = await tool.call(params, CALL)
    except (Rejected, NotSent):
        pass
    else:
        assert "private" not in str(result)
        assert case == "write"  # a rename replaces the link itself
        assert not (root / "sub" / "a.txt").is_symlink()
    assert (outside / "a.txt").read_text() == "private\n"
    assert [each.name for each in outside.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("case", ["write", "append"])
async def test_a_look_does_not_follow_such_a_link_either(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    root, outside = folders
    make, params = CASES[case]
    (outside / "a.txt").write_text("new")
    swapping(monkeypatch, lambda: swap_folder(root, outside))
    assert isinstance(await make(root).reconcile(params, CALL), Unknown)
    assert (outside / "a.txt").read_text() == "new"


async def test_a_link_inside_of_the_folder_works(folders: tuple[Path, Path]) -> None:
    root, _ = folders
    (root / "alias").symlink_to(root / "sub")
    (root / "alias.txt").symlink_to(root / "sub" / "a.txt")
    assert (await FileRead(root).call({"path": "alias/a.txt"}, CALL))["text"] == "inside\n"
    await FileWrite(root).call({"path": "alias.txt", "text": "new\n"}, CALL)
    assert (root / "sub" / "a.txt").read_text() == "new\n"
    assert (root / "alias.txt").is_symlink()
    await FileAppend(root).call({"path": "alias/a.txt", "text": "more"}, CALL)
    assert (root / "sub" / "a.txt").read_text().startswith("new\nmore")
    names = [each["path"] for each in await FileList(root).call({"glob": "**/*.txt"}, CALL)]
    assert names == ["alias.txt", "sub/a.txt"]


async def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    root = tmp_path / "new" / "root"
    await FileWrite(root).call({"path": "a/b/c.txt", "text": "x"}, CALL)
    await FileAppend(root).call({"path": "a/d/e.txt", "text": "y"}, CALL)
    assert (root / "a" / "b" / "c.txt").read_text() == "x"
    assert (root / "a" / "d" / "e.txt").read_text().startswith("y")
