"""The result of a pipeline run, and its reports while it is in progress. These are public."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias

import msgspec

from rota.core.redaction import shown

OutcomeWord: TypeAlias = Literal["completed", "partial", "failed", "cancelled"]
ItemStatus: TypeAlias = Literal["completed", "failed", "skipped", "filtered"]

# The exit code of a command line.
EXIT: dict[str, int] = {"completed": 0, "failed": 1, "partial": 7, "cancelled": 130}

ERRORS_MAX = 20  # errors of items in a result; all of them are with their items


class ItemError(msgspec.Struct, frozen=True):
    """Why one item failed."""

    position: int  # among the items that were mapped, from 0
    message: str
    type: str  # the class of the error, such as Rejected or BadReply


class PipelineResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a run. It is the run's output in the database, as JSON.

    total = filtered + processed + failed + skipped. Skipped items were not begun: the run
    stopped before (fail_fast, max_failures, a spent budget, a cancellation, a failure).
    """

    outcome: OutcomeWord
    pipeline_id: str
    total: int = 0
    processed: int = 0
    failed: int = 0
    skipped: int = 0
    filtered: int = 0
    output: str | None = None  # the reduced text; None in the database when it is long
    output_chars: int = 0
    output_fields: dict[str, Any] | None = None  # of an AI reduce or a job with `output`
    result_file: str | None = None  # relative to the pipeline's folder
    calls: int = 0  # that were or may be charged: answered, or sent without an answer
    unanswered_calls: int = 0  # of these: timed out, cut off, or lost in a crash
    estimated_calls: int = 0  # of these: answered, without a believable count of tokens
    tokens_in: int = 0  # as the provider counted, as are tokens_out and cost_usd
    tokens_out: int = 0
    cost_usd: float = 0.0  # of the calls with a known price
    assumed_tokens: int = 0  # the most that unanswered and estimated calls took
    assumed_cost_usd: float = 0.0  # the same
    unpriced_calls: int = 0
    duration_ms: int = 0
    errors: list[ItemError] = []
    failed_by: dict[str, int] = {}  # failed items by the class of their error, as TruncatedReply
    error: str | None = None  # why the run itself failed
    definition: str = ""  # fingerprint of the definition: pipeline.yaml, its prompts and skills
    models: list[str] = []  # provider:model of the answers about items
    warnings: list[str] = []

    @property
    def success(self) -> bool:
        """Whether everything worked; a partial result is not a success."""
        return self.outcome == "completed"

    @property
    def tokens(self) -> int:
        """Both directions."""
        return self.tokens_in + self.tokens_out

    @property
    def exit_code(self) -> int:
        """The exit code of a command line."""
        return EXIT[self.outcome]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run of this process, at every change.

    `phase`: begun, loading, filtering, mapping, reducing, node, ended. Counts only grow within a
    phase. `total` is None until the items are counted.
    """

    run_id: str
    root_id: str
    pipeline_id: str
    phase: str
    node: str | None = None  # of the graph form
    total: int | None = None
    done: int = 0  # items that have ended, failed ones included
    failed: int = 0
    filtered: int = 0
    running: int = 0
    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    waiting: str | None = None  # why calls wait for their provider: it is down, or throttles
    outcome: OutcomeWord | None = None  # with phase ended; None then too: handed over or retried
    error: str | None = None  # with phase ended: why this attempt failed
    schedule_id: str | None = None
    trigger: str = "manual"
    attempt: int = 1


class ItemOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item and its outcome."""

    position: int
    item: dict[str, Any]
    status: ItemStatus
    output: dict[str, Any] | None = None
    text: str | None = None
    raw: str | None = None  # the reply that could not be read
    error: str | None = None
    error_type: str | None = None
    reason: str | None = None  # why it was filtered
    model: str | None = None  # provider:model that answered
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    duration_ms: int = 0
    finished_at: str | None = None  # RFC 3339
    requests: list[str] = []  # the names that the provider gave to its calls


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of calls. `cost_usd` is that of the calls with a known price."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> int:
        """Both directions."""
        return self.tokens_in + self.tokens_out

    def __add__(self, other: msgspec.Struct) -> Self:
        """The sum, number by number. A number that `other` does not have counts as 0."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(self, **{
            name: value + (getattr(other, name, 0) or 0)
            for name, value in values.items()
            if isinstance(value, int | float)
        })  # fmt: skip


class AssumedCost(msgspec.Struct, frozen=True, kw_only=True):
    """A call with an unknown cost: its most, or the cost that a person found on the bill."""

    at: str | None  # RFC 3339
    model: str
    why: str
    request_id: str | None  # the provider's name for the call
    tokens: int  # at most
    cost_usd: float  # at most
    corrected_usd: float | None = None


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a run: a certain part, and calls with an assumed cost."""

    calls: int
    cost_usd: float  # certain, corrected calls included
    assumed_cost_usd: float  # at most, of the calls that are not corrected
    assumed: list[AssumedCost]


CostUnit: TypeAlias = Literal["model", "day", "item"]


class CostShare(UsageSum, frozen=True):
    """The share of a model, a day or an item in the cost of a run."""

    of: str  # the model, the day in UTC on which items ended, or the position of the item
    items: int = 0

    def plus(self, outcome: ItemOutcome) -> CostShare:
        """The same with one more item."""
        return msgspec.structs.replace(self + outcome, items=self.items + 1)


def shown_item(outcome: ItemOutcome) -> ItemOutcome:
    """An item for people: without the values of secret fields."""
    return msgspec.structs.replace(outcome, item=shown(outcome.item), output=shown(outcome.output))


class CostPage(msgspec.Struct, frozen=True):
    """Shares in the cost of a run's items. `next` is None at the end."""

    by: CostUnit
    shares: list[CostShare]
    next: int | None


class ItemsPage(msgspec.Struct, frozen=True):
    """Items of a run and their outcomes, in order. `next` is None at the end."""

    items: list[ItemOutcome]
    next: int | None
