"""A chat with a translator: the last message of the user is the text to translate."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from glassformer.serve.completions import CompletionFields
from glassformer.serve.refusal import Refusal

__all__ = ["ChatFields", "as_chat", "as_completion"]


class ChatFields(BaseModel):
    """Fields of /v1/chat/completions."""

    model: str = Field(description="Name of a translator; see /v1/models.")
    messages: list[dict[str, Any]] = Field(description="The last one of the role user is translated.")
    max_tokens: int | None = Field(None, ge=1, description="Most new tokens; unset: the end of the translation.")
    max_completion_tokens: int | None = Field(None, ge=1, description="The same.")
    temperature: float | None = Field(None, ge=0, le=100, description="0: the best; above: drawn.")
    top_p: float | None = Field(None, gt=0, le=1, description="Draw among the tokens that hold this mass.")
    n: int | None = Field(None, ge=1, description="Choices.")
    stop: str | list[str] | None = Field(None, description="Texts that end a choice.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Repeats a draw.")
    stream: bool | None = Field(None, description="Send pieces as server-sent events.")
    stream_options: dict[str, bool] | None = Field(None, description="include_usage.")
    presence_penalty: float | None = Field(None, description="Not supported, but for 0.")
    frequency_penalty: float | None = Field(None, description="Not supported, but for 0.")
    logprobs: bool | None = Field(None, description="Not supported, but for false.")
    top_logprobs: int | None = Field(None, description="Not supported.")
    user: str | None = Field(None, description="Not read.")


def as_completion(fields: ChatFields) -> CompletionFields:
    """The same request to /v1/completions."""
    for name in ("logprobs", "top_logprobs"):
        if getattr(fields, name):
            raise Refusal(400, f"{name}: translators do not support it.", param=name, code="unsupported")
    given = fields.model_dump(exclude={"messages", "max_completion_tokens", "logprobs", "top_logprobs"})
    given["max_tokens"] = fields.max_completion_tokens or fields.max_tokens
    return CompletionFields(prompt=_last_text(fields.messages), **given)


def _last_text(messages: list[dict[str, Any]]) -> str:
    """The content of the last message of the user: a text, or parts of which all are texts."""
    for message in reversed(messages):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") if isinstance(part, dict) else None for part in content]
            content = "\n".join(part for part in parts if isinstance(part, str)) if all(parts) else None
        if isinstance(content, str):
            return content
        raise Refusal(400, "messages: the content of the last user message is no text.", param="messages")
    raise Refusal(400, "messages: one with the role user was expected.", param="messages")


def as_chat(answer: dict[str, Any]) -> dict[str, Any]:
    """A completion, or a piece of one (which has no usage beside its choices), in the shape of a chat."""
    is_whole = bool(answer["choices"]) and "usage" in answer
    kind, key = ("chat.completion", "message") if is_whole else ("chat.completion.chunk", "delta")
    choices = [
        {
            "index": choice["index"],
            key: {"role": "assistant", "content": choice["text"]},
            "logprobs": None,
            "finish_reason": choice["finish_reason"],
        }
        for choice in answer["choices"]
    ]
    return answer | {"object": kind, "choices": choices}
