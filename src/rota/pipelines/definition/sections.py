"""The parts of a pipeline.yaml that are in the linear and in the graph form alike."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

Meta = msgspec.Meta


class Section(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A mapping of the file. Keys it does not know are refused."""


Item: TypeAlias = dict[str, Any]
FieldType: TypeAlias = Literal["any", "string", "integer", "number", "boolean", "list", "object"]
OnError: TypeAlias = Literal["abort", "warn"]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Natural: TypeAlias = Annotated[int, Meta(ge=0)]


class OutputField(Section, frozen=True, kw_only=True):
    """A field of a reply, with what it must look like."""

    name: Annotated[str, Meta(min_length=1, description="The key in the reply.")]
    type: Annotated[FieldType, Meta(description="The type of the value.")] = "any"
    enum: Annotated[
        list[str | int | float | bool] | None, Meta(description="The values allowed.")
    ] = None
    required: Annotated[bool, Meta(description="Whether a reply without the field is refused.")] = (
        True
    )
    description: Annotated[str | None, Meta(description="Description for the model.")] = None


Output: TypeAlias = Annotated[
    list[str | OutputField],
    Meta(description="Fields to read from the reply; names, or fields with a type. None: text."),
]
Prompt: TypeAlias = Annotated[
    str | None, Meta(description="The prompt, with {{placeholders}}. Either this or promptFile.")
]
PromptFile: TypeAlias = Annotated[
    str | None,
    Meta(description="A file with the prompt, in the folder, prompts or ../prompts."),
]
Skill: TypeAlias = Annotated[str | None, Meta(description="A skill to put before the prompt.")]
Skills: TypeAlias = Annotated[
    list[str], Meta(description="Several skills to put before the prompt, in this order.")
]
Model: TypeAlias = Annotated[
    str | None, Meta(description="The model; may hold {{placeholders}} where items are available.")
]
Parallel: TypeAlias = Annotated[
    Positive | None, Meta(description="Calls at the same time; default 5.")
]
Timeout: TypeAlias = Annotated[
    Positive | None, Meta(description="Timeout of one call, in milliseconds; cancels the call.")
]


class Retry(Section, frozen=True, kw_only=True):
    """Retries of a failed call."""

    max_retries: Annotated[Natural, Meta(description="Retries after the first attempt.")] = 2
    retry_delay_ms: Annotated[
        Natural, Meta(description="Milliseconds before the first retry; doubles each time.")
    ] = 1000
    max_wait_ms: Annotated[
        Positive,
        Meta(description="Milliseconds that a call may wait for its provider in total."),
    ] = 600_000
    max_tokens_factor: Annotated[
        Annotated[float, Meta(ge=1, le=16)],
        Meta(description="Factor of maxTokens for a second call after a reply was cut off."),
    ] = 2.0


class Sample(Section, frozen=True, kw_only=True):
    """A random choice of items, the same every time for one seed."""

    size: Annotated[Annotated[int, Meta(ge=1)], Meta(description="How many items to keep.")]
    seed: Annotated[int, Meta(description="Seed of the random choice.")] = 0


class Parameter(Section, frozen=True, kw_only=True):
    """A name and its value."""

    name: Annotated[str, Meta(min_length=1, description="The name in {{placeholders}}.")]
    value: Annotated[Any, Meta(description="Its value; anything but null.")]


class BudgetLimits(Section, frozen=True, kw_only=True):
    """Limits. Rota makes no call that could exceed one of them."""

    max_cost: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Cost, in the currency of the prices."),
    ] = None
    max_tokens: Annotated[Positive | None, Meta(description="Tokens, in and out.")] = None
    max_calls: Annotated[Positive | None, Meta(description="AI calls.")] = None


class PipelineBudget(BudgetLimits, frozen=True, kw_only=True):
    """Limits of one run with all its retries; and of all runs of the pipeline together."""

    per_day: Annotated[
        BudgetLimits | None, Meta(description="Limits of all runs on one day, in UTC.")
    ] = None
    per_month: Annotated[
        BudgetLimits | None, Meta(description="Limits of all runs in one month, in UTC.")
    ] = None


class ResultsFiles(Section, frozen=True, kw_only=True):
    """The files in `.results`, one for each run."""

    keep: Annotated[
        Natural, Meta(description="Newest files to keep; older ones are deleted. 0 writes none.")
    ] = 100
    dropped: Annotated[
        bool, Meta(description="Whether the files hold items that the filter dropped.")
    ] = False


class CallOptions(Section, frozen=True, kw_only=True):
    """The options sent with the prompt. A part wins over settings; headers and body are merged."""

    max_tokens: Annotated[
        Positive | None,
        Meta(description="Most tokens of an answer. A longer one is cut off, and fails."),
    ] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="Randomness of the answer (sampling temperature); 0 is the least."),
    ] = None
    system: Annotated[
        str | None, Meta(description="The system prompt, sent unchanged: no {{placeholders}}.")
    ] = None
    headers: Annotated[
        dict[str, str], Meta(description="Further HTTP headers, such as anthropic-beta. No keys.")
    ] = {}
    body: Annotated[
        dict[str, Any], Meta(description="Further fields of the request, such as top_p or seed.")
    ] = {}

    @property
    def call_options(self) -> dict[str, Any]:
        """The same as keyword arguments of another part."""
        return {name: getattr(self, name) for name in CallOptions.__struct_fields__}


class PipelineSettings(CallOptions, frozen=True, kw_only=True):
    """Defaults for every part of the pipeline; a part may override them."""

    model: Annotated[str | None, Meta(description="Default model.")] = None
    parallel: Parallel = None
    timeout_ms: Timeout = None
    on_error: Annotated[OnError, Meta(description="The effect of a failed node on the run.")] = (
        "abort"
    )
    working_directory: Annotated[
        str | None, Meta(description="As workingDirectory of the pipeline, which overrides it.")
    ] = None
    retry: Annotated[Retry, Meta(description="Retries of failed calls.")] = Retry()
    budget: Annotated[PipelineBudget | None, Meta(description="Limits of one run.")] = None
    results: Annotated[ResultsFiles, Meta(description="The files with the results of runs.")] = (
        ResultsFiles()
    )
    run_timeout_ms: Annotated[
        Positive | None,
        Meta(description="Milliseconds for the whole run, waits for a provider included."),
    ] = None


class AiSection(CallOptions, frozen=True, kw_only=True):
    """The common options of every AI call."""

    prompt: Prompt = None
    prompt_file: PromptFile = None
    skill: Skill = None
    skills: Skills = []
    output: Output = []
    model: Model = None
    timeout_ms: Timeout = None
    retry: Annotated[Retry | None, Meta(description="Retries of failed calls.")] = None

    @property
    def skill_names(self) -> list[str]:
        """All skills, `skill` first."""
        return list(dict.fromkeys([*([self.skill] if self.skill else []), *self.skills]))


class MapStep(AiSection, frozen=True, kw_only=True):
    """One AI call for each item, or for each batch of items."""

    parallel: Parallel = None
    batch_size: Annotated[
        Positive, Meta(description="Items in one call; the prompt then holds {{ITEMS}}.")
    ] = 1
    fail_fast: Annotated[
        bool, Meta(description="Start no further items after the first failure.")
    ] = False
    max_failures: Annotated[
        Natural | Annotated[str, Meta(pattern=r"^\d{1,3}%$")] | None,
        Meta(description='Stop when more items failed: a number, or a share such as "10%".'),
    ] = None


class ReduceStep(AiSection, frozen=True, kw_only=True):
    """All results into one."""

    type: Annotated[
        Literal["list", "table", "json", "csv", "text", "ai"],
        Meta(description="The form of the result; ai asks a model with {{RESULTS}}."),
    ]
    include_failures: Annotated[
        bool, Meta(description="ai only: whether {{RESULTS}} holds the failed items too.")
    ] = False
    max_chars: Annotated[
        Annotated[int, Meta(ge=1000)],
        Meta(description="ai only: longest {{RESULTS}} in one call; more is reduced in parts."),
    ] = 200_000


class Job(AiSection, frozen=True, kw_only=True):
    """A single AI call."""


class AiFilter(AiSection, frozen=True, kw_only=True):
    """A question to the AI about each item; yes keeps it."""

    parallel: Parallel = None
