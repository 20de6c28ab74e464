"""Prompt files and skills: where they are looked for, and how they become one prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.errors import BadInput

_FRONT = re.compile(r"\A---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_SKILL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]*")
SKILL_FILE = "SKILL.md"


def prompt_places(name: str, folder: Path) -> list[Path]:
    """The folders in which a prompt file is looked for, in this order."""
    wanted = Path(name).expanduser()
    if wanted.is_absolute():
        return [wanted]
    if len(wanted.parts) > 1:
        return [folder / wanted]
    return [folder / wanted, folder / "prompts" / wanted, folder.parent / "prompts" / wanted]


def read_prompt(name: str, folder: Path) -> str:
    """The text of a prompt file without its front matter; a miss names every place."""
    return _first_text(prompt_places(name, folder), f"the prompt file {name}")


def skill_folders(folder: Path) -> list[Path]:
    """Folders with skills: in the pipeline, beside it, and in .github/skills above it."""
    above = [each / ".github" / "skills" for each in folder.resolve().parents]
    return [folder / "skills", folder.parent / "skills", *above]


def read_skill(name: str, folders: Sequence[Path]) -> str:
    """The text of a skill without its front matter."""
    if not _SKILL_NAME.fullmatch(name) or ".." in name:
        raise BadInput(
            f'"{name}" is not the name of a skill; it names a folder, without separators and dots'
        )
    places = [folder / name / SKILL_FILE for folder in folders]
    return _first_text(places, f"the skill {name}").strip()


def _first_text(places: Sequence[Path], what: str) -> str:
    """The text of the first of these files that exists, without its front matter."""
    file = next((path for path in places if path.is_file()), None)
    if file is None:
        listed = ", ".join(str(path) for path in places[:4])
        raise BadInput(f"{what} is not there; looked for {listed}")
    text = without_front_matter(_text_of(file))
    if not text.strip():
        raise BadInput(f"{what}: {file} is empty")
    return text


def with_skills(prompt: str, skills: Mapping[str, str]) -> str:
    """The prompt with its skills (texts by name) before it; their placeholders count like its
    own."""
    if not skills:
        return prompt
    guidance = [f"[Skill Guidance: {name}]\n{text}\n" for name, text in skills.items()]
    return "\n".join([*guidance, f"[Task]\n{prompt}"])


def without_front_matter(text: str) -> str:
    """The text after a YAML block at its very beginning."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return _FRONT.sub("", text, count=1)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8; save it as UTF-8") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
