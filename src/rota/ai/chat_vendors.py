"""Servers with the chat interface of OpenAI, each with the parts of it that it takes."""

from __future__ import annotations

from rota.ai.openai import OpenAI
from rota.ai.provider_call import Home


class Azure(OpenAI):
    """OpenAI's models at Azure. A deployment may have any name, so all take the new field."""

    home = Home(
        "", "AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_API_KEY",
        r"[\w-]{1,80}\.(openai|cognitiveservices|services\.ai)\.azure\.com",
    )  # fmt: skip
    key_header = "api-key"
    vendor = "azure"
    tokens_field = "max_completion_tokens"


class Mistral(OpenAI):
    """Mistral counts tokens in every stream, and refuses the option for it."""

    home = Home("https://api.mistral.ai/v1", "MISTRAL_BASE_URL", "MISTRAL_API_KEY")
    vendor = "mistral"
    tokens_field = "max_tokens"
    stream_usage = False


class OpenRouter(OpenAI):
    """OpenRouter states the cost of a call in dollars."""

    home = Home("https://openrouter.ai/api/v1", "OPENROUTER_BASE_URL", "OPENROUTER_API_KEY")
    vendor = "openrouter"
    tokens_field = "max_tokens"
    states_cost = True


class Ollama(OpenAI):
    """A server of Ollama; every model takes a schema."""

    home = Home("http://localhost:11434/v1", "OLLAMA_BASE_URL", "")
    vendor = "ollama"
    tokens_field = "max_tokens"
    schemas = True


class Vllm(OpenAI):
    """A server of vLLM; every model takes a schema."""

    home = Home("http://localhost:8000/v1", "VLLM_BASE_URL", "")
    vendor = "vllm"
    schemas = True


class LMStudio(OpenAI):
    """A server of LM Studio; it takes a schema, but refuses JSON mode without one."""

    home = Home("http://localhost:1234/v1", "LMSTUDIO_BASE_URL", "")
    vendor = "lmstudio"
    tokens_field = "max_tokens"
    json_object = False
    schemas = True
