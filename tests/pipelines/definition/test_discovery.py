"""Finding pipelines: good and broken ones, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.errors import BadInput
from rota.pipelines.definition.discovery import input_kind
from tests.pipelines.kit import GOOD, discover, load, write


def test_every_pipeline_is_listed_and_a_broken_one_disturbs_no_other(tmp_path: Path) -> None:
    write(tmp_path / "b-good", GOOD)
    write(tmp_path / "a-broken", "name: x\nmap: {promt: y}\n")
    write(tmp_path / "c-yml", GOOD)
    (tmp_path / "c-yml" / "pipeline.yaml").rename(tmp_path / "c-yml" / "pipeline.yml")
    write(tmp_path / "d-both", GOOD)
    (tmp_path / "d-both" / "pipeline.yml").write_text(GOOD)
    (tmp_path / "shared").mkdir()
    (tmp_path / "notes.txt").write_text("no pipeline")
    write(tmp_path / "shared" / "deep", GOOD)  # one level only
    found = discover(tmp_path)
    assert [each.pipeline_id for each in found] == ["a-broken", "b-good", "c-yml", "d-both"]
    assert [each.loaded is not None for each in found] == [False, True, True, False]
    assert 'unknown key "promt"' in "\n".join(str(problem) for problem in found[0].problems)
    assert "pipeline.yaml and pipeline.yml" in found[3].problems[0].message


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a folder"):
        discover(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (GOOD, ("inline", 1)),
        (GOOD.replace("items:\n    - {title: one}", "from: {type: csv, path: x}"), ("csv", None)),
        ("name: n\njob: {prompt: x}\n", ("job", 1)),
        ("name: n\nnodes: {a: {kind: script, run: ls}}\n", ("graph", None)),
        (
            GOOD.replace(
                "items:\n    - {title: one}",
                "generate: {prompt: x, schema: [title], autoApprove: true}",
            ),
            ("generated", None),
        ),
    ],
)
def test_a_list_shows_where_items_come_from(
    tmp_path: Path, text: str, kind: tuple[str, int | None]
) -> None:
    assert input_kind(load(tmp_path / "p", text)) == kind
