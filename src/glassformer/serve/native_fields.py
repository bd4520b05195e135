"""Fields of glassformer's own protocol, which shows more of a model than the others have words for."""

from __future__ import annotations

from pydantic import BaseModel, Field

__all__ = ["ClassifyFields", "ContinueFields", "ExplainFields", "LabelFields", "TranslateFields"]

MODEL = Field(description="Name of the model; see /v1/models.")


class TranslateFields(BaseModel):
    """Fields of /glassformer/translate: a direction, or a model."""

    text: str = Field(description="Text to translate.")
    source: str | None = Field(None, description="Code of its language, or auto.", max_length=40)
    target: str | None = Field(None, description="Code of the language to translate into.", max_length=40)
    model: str | None = Field(None, description="Name of the model, in place of languages; see /v1/models.")
    alternatives: int = Field(0, ge=0, description="Further translations of a text of one segment.")


class ContinueFields(BaseModel):
    """Fields of /glassformer/continue."""

    model: str = MODEL
    prompt: str = Field(description="Text to continue.")
    kept: list[int] = Field(
        default_factory=list, max_length=256, description="Ids of the model's tokens that follow it."
    )
    max_tokens: int = Field(16, ge=1, le=256, description="Most new tokens.")
    temperature: float = Field(0.0, ge=0, le=100, description="0: the most probable token; above: drawn.")
    seed: int | None = Field(None, ge=0, lt=2**48, description="Repeats a draw.")
    candidates: int = Field(8, ge=1, le=20, description="Candidates of each place.")


class ClassifyFields(BaseModel):
    """Fields of /glassformer/classify."""

    model: str = MODEL
    text: str = Field(description="Text to classify.")
    second: str | None = Field(None, description="The other text, where the model takes pairs.")


class LabelFields(BaseModel):
    """Fields of /glassformer/label."""

    model: str = MODEL
    text: str = Field(description="Text whose words are labelled.")


class ExplainFields(BaseModel):
    """Fields of /glassformer/explain: one sentence, and a direction or a model."""

    text: str = Field(description="One sentence.")
    source: str | None = Field(None, description="Code of its language.", max_length=40)
    target: str | None = Field(None, description="Code of the language to translate into.", max_length=40)
    model: str | None = Field(None, description="Name of the model, in place of languages; see /v1/models.")
    reference: str | None = Field(None, description="A translation to look for in the search.")
