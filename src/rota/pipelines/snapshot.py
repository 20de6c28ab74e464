"""The input of a run, as stored: definition, prompts, parameters, given items.

It is the input of a run's row, so a run resumes with the definition that it began with, whatever
happened to the files. It is the input of a schedule's row too: the last good definition stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rota.ai.routes import Routes
from rota.core.pipelines.templates import RESERVED
from rota.errors import BadInput
from rota.pipelines.definition.compiler import graph_of
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.nodes import LoadNode, Node
from rota.pipelines.definition.parameters import parameters_of
from rota.pipelines.definition.sources import InlineSource


class Overrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a start that override the file."""

    model: str | None = None
    parallel: int | None = None
    timeout_ms: int | None = None
    limit: int | None = None
    cache_from: str | None = None  # a run that gives its results where the content is equal


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a run needs beside its input files."""

    pipeline: Pipeline
    pipeline_id: str
    folder: str
    prompts: dict[str, str]
    digest: str
    given: dict[str, Any] = {}  # parameters of the start
    items: list[dict[str, Any]] | None = None
    overrides: Overrides = Overrides()
    reused: tuple[str, ...] = ()  # earlier runs, as recorded with `routes`
    routes: Routes = Routes()  # as recorded when the run was first executed; not in its input

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters; those of the start override the file."""
        return parameters_of(self.pipeline, self.given)

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes of the pipeline in either form, with what the start overrides."""
        nodes = graph_of(self.pipeline)
        if self.items is None and self.overrides.limit is None:
            return nodes
        return {
            node_id: self._overridden(node) if isinstance(node, LoadNode) else node
            for node_id, node in nodes.items()
        }

    def _overridden(self, node: LoadNode) -> LoadNode:
        source = node.source if self.items is None else InlineSource(items=self.items)
        limit = self.overrides.limit
        limit = node.limit if limit is None else limit
        return msgspec.structs.replace(node, source=source, limit=limit)

    @property
    def path(self) -> Path:
        """The pipeline's folder."""
        return Path(self.folder)


_DECODER = msgspec.json.Decoder(Snapshot)


def take(
    loaded: Loaded,
    *,
    parameters: Mapping[str, Any] | None = None,
    items: Iterable[Mapping[str, Any]] | None = None,
    overrides: Overrides | None = None,
) -> Snapshot:
    """The snapshot of a pipeline as it was read; BadInput for values that no run can start with."""
    given = dict(parameters or {})
    reserved = sorted(set(given) & set(RESERVED))
    if reserved:
        raise BadInput(f"{', '.join(reserved)} is filled in by the runner", hint="Rename it.")
    if items is not None and loaded.pipeline.mode != "map-reduce":
        raise BadInput(f"{loaded.pipeline_id} takes no items: it is a {loaded.pipeline.mode}")
    if overrides is not None and overrides.limit is not None and loaded.pipeline.mode == "job":
        raise BadInput(f"{loaded.pipeline_id} has no items to limit: it is a job")
    rows = None if items is None else [dict(item) for item in items]
    return Snapshot(
        pipeline=loaded.pipeline, pipeline_id=loaded.pipeline_id,
        folder=str(loaded.folder.resolve()), prompts=loaded.prompts, digest=loaded.digest,
        given=given, items=rows, overrides=overrides or Overrides(),
    )  # fmt: skip


def encoded(loaded: Loaded) -> str:
    """The input of a schedule's runs, as stored."""
    return msgspec.json.encode(take(loaded)).decode()


def read(text: str | None) -> Snapshot:
    """The snapshot in a stored input."""
    try:
        return _DECODER.decode(text or "")
    except msgspec.MsgspecError as error:
        raise BadInput(
            f"the stored definition cannot be read: {error}",
            hint="It was written by another version of Rota; start the pipeline again.",
        ) from error
