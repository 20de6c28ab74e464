"""Writes `src/rota/ai/models.json`, the prices and facts of models, from LiteLLM's list (MIT).

`python -m scripts.model_data [WHEEL] [--date YYYY-MM-DD]`; without a wheel, pip downloads the
newest. LiteLLM itself is not installed. The date is the day of the list, by default today.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "rota" / "ai" / "models.json"
LIST = "litellm/model_prices_and_context_window_backup.json"
# Vendors of Rota, and the names that LiteLLM has for them.
VENDORS = {
    "openai": "openai", "azure": "azure", "anthropic": "anthropic", "gemini": "gemini",
    "mistral": "mistral", "deepseek": "deepseek", "xai": "xai", "groq": "groq",
    "bedrock": "bedrock", "bedrock_converse": "bedrock", "together_ai": "together",
    "cerebras": "cerebras", "moonshot": "moonshot",
}  # fmt: skip
RATES = {
    "input_cost_per_token": "in", "output_cost_per_token": "out",
    "cache_read_input_token_cost": "cache_read",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_long",
    "cache_creation_input_token_cost_above_12hr": "cache_write_long",
}  # fmt: skip
TIERS = {"": "", "priority": "priority", "flex": "flex", "batches": "batch", "ultrafast": "fast"}
FACTS = {
    "max_input_tokens": "context", "max_output_tokens": "answer_max",
    "supports_reasoning": "reasons", "thinking_always_on": "always_thinks",
}  # fmt: skip
_COST = re.compile(
    rf"({'|'.join(sorted(RATES, key=len, reverse=True))})"
    rf"(?:_above_(\d+)k_tokens)?(?:_({'|'.join(filter(None, TIERS))}))?"
)
MILLION = 1_000_000


def rates_of(model: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rates by tier; those of longer prompts come later, and are complete."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for name, value in model.items():
        match = _COST.fullmatch(name)
        if match is None or not isinstance(value, int | float):
            continue
        rate, above, tier = match.group(1, 2, 3)
        step = found.setdefault(TIERS[tier or ""], {}).setdefault(int(above or 0) * 1000, {})
        step[RATES[rate]] = round(value * MILLION, 6)
    standard = found.get("", {}).get(0, {})
    if not {"in", "out"} <= standard.keys():
        return {}
    fast = model.get("provider_specific_entry", {}).get("fast")
    if fast:
        found["fast"] = {
            above: {name: round(value * fast, 6) for name, value in step.items()}
            for above, step in found[""].items()
        }
    tiers = {}
    for tier, steps in found.items():
        base = steps.get(0, {})
        if {"in", "out"} <= base.keys():
            tiers[tier] = [
                {**base, **steps[above], **({"above": above} if above else {})}
                for above in sorted(steps)
            ]
    return tiers


def facts_of(model: dict[str, Any]) -> dict[str, Any]:
    """The part of a model's entry that Rota uses."""
    facts: dict[str, Any] = {"rates": rates_of(model)}
    facts |= {ours: model[name] for name, ours in FACTS.items() if model.get(name)}
    search = model.get("search_context_cost_per_query", {})
    if search:
        facts["search_usd"] = max(search.values())
    if model.get("supports_sampling_params") is False or _fixed_temperature(model):
        facts["takes_temperature"] = False
    if model.get("supports_response_schema") or model.get("supports_native_structured_output"):
        facts["takes_schema"] = True
    if model["mode"] == "responses":
        facts["only_responses"] = True
    return facts


def _fixed_temperature(model: dict[str, Any]) -> bool:
    """OpenAI's reasoning models refuse a temperature; LiteLLM has that rule in its code."""
    return model["litellm_provider"] in ("openai", "azure") and bool(
        model.get("supports_reasoning")
    )


def models_of(text: bytes) -> dict[str, dict[str, Any]]:
    """The models by vendor."""
    models: dict[str, dict[str, Any]] = {vendor: {} for vendor in VENDORS.values()}
    for name, model in json.loads(text).items():
        vendor = VENDORS.get(model.get("litellm_provider", ""))
        if vendor is None or model.get("mode") not in ("chat", "responses"):
            continue
        plain = name.removeprefix(f"{model['litellm_provider']}/").removeprefix("bedrock/")
        facts = facts_of(model)
        if facts["rates"] and "ft:" not in plain:
            models[vendor].setdefault(plain, facts)
    return models


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", nargs="?", type=Path)
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat())
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = given.wheel
        if wheel is None:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
            subprocess.run([*pip, "litellm"], check=True)
            [wheel] = Path(folder).glob("litellm-*.whl")
        models = models_of(zipfile.ZipFile(wheel).read(LIST))
    source = "litellm " + wheel.name.split("-")[1]
    head = {"date": given.date, "source": source}
    lines = [json.dumps(head)[:-1] + ', "models": {']
    for number, (vendor, listed) in enumerate(sorted(models.items())):
        lines.append(f'{"," if number else ""}"{vendor}": {{')
        rows = [f"{json.dumps(name)}: {json.dumps(listed[name])}" for name in sorted(listed)]
        lines += [",\n".join(rows), "}"]
    TARGET.write_text("\n".join([*lines, "}}", ""]), encoding="utf-8")
    count = sum(map(len, models.values()))
    print(f"{TARGET.name}: {count} models of {source}, {TARGET.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
