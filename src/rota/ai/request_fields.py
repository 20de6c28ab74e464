"""Further headers and body fields of a question: which names and values may be given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Set by Rota: keys, the form of the message, and what decides who is asked.
_HEADERS = {
    *("authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"),
    *("host", "content-type", "content-length", "transfer-encoding", "connection", "upgrade"),
    *("accept-encoding", "te", "trailer", "expect"),
}
# Set by Rota, or what a budget could not be kept with: several answers to one question.
_BODY = {
    *("model", "messages", "system", "stream", "stream_options", "temperature"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"),
    *("input", "instructions", "contents", "systemInstruction", "system_instruction"),
}
# Fields that change neither the price of a token nor what is priced. Under a budget in dollars all
# others are refused, unless the settings of the provider name them as `same_price`.
SAME_PRICE = {
    # The tariff is part of the price: `Price.tier`.
    *("service_tier", "speed", "cache_control"),
    *("top_p", "top_k", "min_p", "seed", "random_seed", "stop", "stop_sequences", "logit_bias"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "logprobs", "top_logprobs"),
    *("reasoning", "reasoning_effort", "reasoning_format", "thinking", "verbosity", "text"),
    *("think", "output_config", "response_format", "format", "structured_outputs", "options"),
    *("metadata", "user", "safety_identifier", "store", "prompt_cache_key", "tool_choice"),
    *("generationConfig", "safetySettings", "inferenceConfig", "keep_alive", "prompt_mode"),
    *("chat_template_kwargs", "parallel_tool_calls", "safe_prompt", "include_reasoning"),
}
_KEYS = {
    "max_tokens": "maxTokens", "max_completion_tokens": "maxTokens",
    "max_output_tokens": "maxTokens", "temperature": "temperature",
    "system": "system", "model": "model",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_VALUE = re.compile(r"[\x20-\x7e]*")


def header_problems(headers: Mapping[str, str]) -> list[str]:
    """A sentence for each header that cannot be sent."""
    problems = []
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            problems.append(f"{name!r} is not the name of a header: letters, digits and -")
        elif name.lower() in _HEADERS:
            problems.append(f"the header {name} is set by Rota: keys are named in the AI settings")
        elif not _VALUE.fullmatch(value) or value != value.strip():
            problems.append(f"the value of the header {name} is not one line of printable ASCII")
    return problems


def body_problems(body: Mapping[str, Any]) -> list[str]:
    """A sentence for each field that cannot be sent."""
    problems = []
    for name in body:
        if name in _KEYS:
            problems.append(f"the body field {name} has a key of its own: {_KEYS[name]}")
        elif name in _BODY:
            problems.append(f"the body field {name} cannot be set: one question has one answer")
    return problems
