"""Text generation and scoring with a trained decoder-only model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from glassformer.config import GenerationConfig
from glassformer.errors import CheckpointError, LengthError, UserError
from glassformer.evaluation.perplexity import LossMeter, next_token_log_probs
from glassformer.generation.hypothesis import Hypothesis, LengthPenalty
from glassformer.generation.search import generate, generate_steps
from glassformer.generation.streaming import StopStrings
from glassformer.model import DecoderOnly
from glassformer.model.quantized import Precision
from glassformer.tasks.completion import Completion, CompletionStream
from glassformer.tasks.decoding import ModelDecoding, seed_of
from glassformer.tasks.model_folder import load_model_folder
from glassformer.text.tokenizer import Tokenizer

__all__ = ["TextGenerator", "TextScore"]

DEFAULT_NEW_TOKENS = 256  # most tokens made where no limit is given


@dataclass(frozen=True)
class TextScore:
    """The log-probability of a text under a model.

    Attributes:
        ids: The tokens that were predicted: all of the text and its end token. Where the model's texts do not begin
            with BOS, nothing comes before the first token, and it is not predicted.
        token_log_probs: Log-probability of each, in nats.
        meter: Their negated sum, with the numbers of tokens, of words (what white space separates) and of UTF-8 bytes
            (without those of a first token that is not predicted): perplexity per token, per word and per byte.
    """

    ids: list[int]
    token_log_probs: list[float]
    meter: LossMeter


class TextGenerator:
    """Continues texts with one model. `TextGenerator.load(path).generate(["Once upon a time"])`.

    A prompt is encoded as it is, after BOS where the model's texts begin with it. An empty prompt is BOS alone, or the
    end token that stands for it in vocabularies without (GPT-2). What is made for a prompt depends on it, the settings
    and its seed, not on the prompts beside it (float32: the same tokens). Prompt and output together have at most
    `max_positions` tokens.
    """

    def __init__(self, model: DecoderOnly, tokenizer: Tokenizer, generation: GenerationConfig) -> None:
        self.model, self.tokenizer, self.generation = model, tokenizer, generation
        unused = range(tokenizer.vocab_size, model.config.vocab_size)
        self.forbidden_ids = [*tokenizer.never_made, *unused]

    @classmethod
    def load(cls, path: str | Path, *, precision: Precision = "float32") -> TextGenerator:
        """Loads a model folder; see `load_model_folder` for the errors."""
        folder = load_model_folder(path, precision=precision)
        if not isinstance(folder.model, DecoderOnly):
            raise CheckpointError(
                f"{path} holds a model of the family {folder.config.model.family}.",
                "Text generation needs a decoder-only model.",
                "Choose another model.",
            )
        return cls(folder.model, folder.tokenizer, folder.config.generation)

    def generate(
        self,
        prompts: Sequence[str],
        *,
        generation: GenerationConfig | None = None,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
        batch_tokens: int = 8192,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[Completion]:
        """Continues each prompt; output i belongs to prompt i, with `n_best - 1` alternatives.

        Args:
            prompts: Any number of texts.
            generation: Search settings; unset: those saved with the model. Without `max_new_tokens`, 256 tokens.
            seeds: One for each prompt, for sampling; unset: made from the prompt, so equal prompts draw alike.
            stop: Texts that end an output. With beam search, the best whole texts are found first and then cut.
            batch_tokens: Tokens decoded together, prompts and outputs, pads included.
            on_progress: Called with the number of prompts done so far.

        Raises:
            LengthError: A prompt leaves no room in the model's context.
            UserError: There are not as many seeds as prompts, or `prompts` is one text.
        """
        generation = generation or self.generation
        rows = [self.prompt_ids(prompt) for prompt in _checked(prompts)]
        seeds = _checked_seeds(seeds, prompts)
        limits = [self.limit(len(ids), generation) for ids in rows]
        n_rows = generation.n_best if generation.do_sample else generation.beam_size
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]) + limits[i], reverse=True)
        found: dict[int, Completion] = {}
        while order:
            size = max(1, batch_tokens // ((len(rows[order[0]]) + limits[order[0]]) * n_rows))
            batch, order = order[:size], order[size:]
            made = generate(
                *self.decoding([rows[i] for i in batch], [limits[i] for i in batch]),
                generation,
                eos_ids=[self.tokenizer.eos_id],
                forbidden_ids=self.forbidden_ids,
                max_new_tokens=torch.tensor([limits[i] for i in batch]),
                seeds=[seeds[i] for i in batch],
                stop=StopStrings(_checked(stop), self.bytes_of) if stop else None,
            )
            found |= {i: self._completion(hypotheses, stop) for i, hypotheses in zip(batch, made, strict=True)}
            if on_progress is not None:
                on_progress(len(found))
        return [found[i] for i in range(len(rows))]

    def stream(
        self,
        prompt: str,
        *,
        generation: GenerationConfig | None = None,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> CompletionStream:
        """The text that `generate` makes of the prompt, piece by piece as soon as it is final; see `TextStream`.

        Raises:
            ConfigError: Beam search, or several outputs, which cannot be streamed.
            LengthError: The prompt leaves no room in the model's context.
        """
        generation = generation or self.generation
        ids = self.prompt_ids(prompt)
        limit = self.limit(len(ids), generation)
        steps = generate_steps(
            *self.decoding([ids], [limit]),
            generation,
            eos_ids=[self.tokenizer.eos_id],
            forbidden_ids=self.forbidden_ids,
            max_new_tokens=torch.tensor([limit]),
            seeds=[seed_of(prompt) if seed is None else seed],
        )
        penalty = LengthPenalty(generation.length_penalty, generation.alpha)
        return CompletionStream(steps if limit else iter(()), self.bytes_of, penalty, _checked(stop))

    def score(
        self,
        texts: Sequence[str],
        *,
        with_eos: bool = True,
        context: int | None = None,
        stride: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[TextScore]:
        """Log-probability of each text, token by token. Merge the meters for the figures of a corpus.

        Args:
            texts: Any number of texts; an empty one has its end token only, or nothing.
            with_eos: Predict the end of each text too.
            context: Most tokens read at once; unset: `max_positions`, or the whole text. Longer texts are read in
                windows that overlap, and every token is counted once.
            stride: Tokens by which a window moves on; unset: half of the context.
            batch_tokens: Tokens read together, pads included; unset: `tokens_together`.
        """
        use_bos = self.model.config.use_bos
        rows = [self.tokenizer.encode(text, add_bos=use_bos, add_eos=with_eos) for text in _checked(texts)]
        found = next_token_log_probs(self.model, rows, context=context, stride=stride, batch_tokens=batch_tokens)
        return [self._score(*parts) for parts in zip(texts, rows, found, strict=True)]

    def prompt_ids(self, prompt: str) -> list[int]:
        """The tokens that the model reads for a prompt, one at least."""
        return self.tokenizer.encode(prompt, add_bos=self.model.config.use_bos) or [self.model.config.bos_id]

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token stands for."""
        return self.tokenizer.bytes_of([token])[0]

    def limit(self, n_prompt: int, generation: GenerationConfig) -> int:
        """Most new tokens after a prompt of n_prompt tokens."""
        limit = generation.max_new_tokens
        if limit is None:
            limit = max(DEFAULT_NEW_TOKENS, generation.min_new_tokens)
        bound = self.model.config.max_positions
        if bound is None:
            return limit
        if n_prompt >= bound:
            raise LengthError(
                f"The prompt has {n_prompt} tokens and max_positions={bound}.",
                "The context holds the prompt and what is made after it.",
                "Shorten the prompt, for example to its last part.",
            )
        return min(limit, bound - n_prompt)

    def decoding(self, rows: Sequence[Sequence[int]], limits: Sequence[int]) -> tuple[ModelDecoding, Tensor]:
        """The prompts as one batch, padded on the left so that all go on at the same place."""
        device = self.model.decoder.embedding.tokens.weight.device
        width = max(map(len, rows))
        prefix = torch.tensor([[*[0] * (width - len(row)), *row] for row in rows], device=device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        mask = torch.arange(width, device=device) >= width - lengths[:, None]
        return ModelDecoding(self.model, max_length=width + max(limits), prefix_mask=mask), prefix

    def _completion(self, hypotheses: list[Hypothesis], stop: Sequence[str]) -> Completion:
        best, *others = [Completion.of(hypothesis, self.bytes_of, stop) for hypothesis in hypotheses]
        return replace(best, alternatives=others)

    def _score(self, text: str, ids: list[int], log_probs: list[float]) -> TextScore:
        n_bytes = len(text.encode())
        if text and not self.model.config.use_bos:
            n_bytes -= min(n_bytes, len(self.bytes_of(ids[0])))
        meter = LossMeter()
        meter.add(-math.fsum(log_probs), len(log_probs), n_words=len(text.split()), n_bytes=n_bytes)
        return TextScore(ids[len(ids) - len(log_probs) :], log_probs, meter)


def _checked(texts: Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise UserError("One text was given.", "A list of texts was expected.", f"Write [{texts[:20]!r}].")
    return texts


def _checked_seeds(seeds: Sequence[int] | None, prompts: Sequence[str]) -> Sequence[int]:
    if seeds is None:
        return [seed_of(prompt) for prompt in prompts]
    if len(seeds) != len(prompts):
        raise UserError(
            f"{len(seeds)} seeds were given for {len(prompts)} prompts.",
            "Each prompt has one seed.",
            "Give as many, or none.",
        )
    return seeds
