"""Translation with a trained encoder-decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glassformer.config import GenerationConfig
from glassformer.errors import CheckpointError, LengthError
from glassformer.generation.decoding import Decoding
from glassformer.generation.hypothesis import Hypothesis
from glassformer.generation.search import generate
from glassformer.model import EncoderDecoder, attention_maps
from glassformer.model.quantized import Precision
from glassformer.tasks.decoding import ModelDecoding, seed_of
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.tasks.segments import as_one_line, split_long
from glassformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

    from glassformer.tasks.translator_pool import TranslatorPool

__all__ = ["Alignment", "Translation", "Translator", "join_lines"]


@dataclass(frozen=True)
class Alignment:
    """Cross-attention of one translation: mean over layers and heads, one row per target piece.

    Rows are queries (target), columns are keys (source); both end with the end-of-text token.
    """

    src_pieces: list[str]
    tgt_pieces: list[str]
    weights: list[list[float]]


@dataclass(frozen=True)
class Translation:
    """One output.

    Attributes:
        text: The translation.
        score: Summed log-probability over the length penalty, in nats; None for blank text. Of several
            segments: the sum.
        log_prob: Summed log-probability, in nats.
        ids: Ids of the output, the end mark included.
        tokens: The same as readable pieces.
        finish_reason: `eos`, `length` (cut at the limit), or `blank`.
        alternatives: Further hypotheses, best first.
        n_segments: Parts that a long text was split into.
        n_unread_tokens: Source tokens at the end of a text that is read whole, and was too long.
    """

    text: str
    score: float | None = None
    log_prob: float | None = None
    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    finish_reason: str = "blank"
    alternatives: list[Translation] = field(default_factory=list)
    n_segments: int = 0
    n_unread_tokens: int = 0


class Translator:
    """Translates texts with one model. `Translator.load(path).translate(["We eat bread."])`.

    The answer for a text does not depend on the texts beside it (float32: the same tokens).
    """

    def __init__(
        self,
        model: EncoderDecoder,
        src_tokenizer: Tokenizer,
        tokenizer: Tokenizer,
        generation: GenerationConfig,
        *,
        max_src_tokens: int,
        prefix: str = "",  # put before every text, as in training
        is_whole: bool = False,  # a text is read as one, and cut where it is too long (summaries)
    ) -> None:
        self.model, self.src_tokenizer, self.tokenizer = model, src_tokenizer, tokenizer
        self.generation = generation
        self.max_src_tokens = max_src_tokens
        self.prefix, self.is_whole = prefix, is_whole
        unused = range(tokenizer.vocab_size, model.config.vocab_size)
        self.forbidden_ids = [*tokenizer.never_made, *unused]

    @classmethod
    def load(cls, path: str | Path, *, precision: Precision = "float32") -> Self:
        """Loads a model folder; see `load_model_folder` for the errors."""
        return cls.of(load_model_folder(path, precision=precision))

    @classmethod
    def of(cls, folder: ModelFolder) -> Self:
        """The translator of a loaded folder."""
        if not isinstance(folder.model, EncoderDecoder):
            raise CheckpointError(
                f"{folder.path} holds a model of the family {folder.config.model.family}.",
                "Translation needs an encoder-decoder.",
                "Choose another model.",
            )
        limit = min(folder.config.data.max_tokens, folder.config.model.max_positions or folder.config.data.max_tokens)
        return cls(
            folder.model,
            folder.src_tokenizer,
            folder.tokenizer,
            folder.config.generation,
            max_src_tokens=limit,
            prefix=folder.config.task.prefix,
            is_whole=folder.config.task.name == "summarize",
        )

    def translate(
        self,
        texts: Sequence[str],
        *,
        generation: GenerationConfig | None = None,
        batch_tokens: int = 4096,
        is_strict: bool = False,
        on_progress: Callable[[int], None] | None = None,
        pool: TranslatorPool | None = None,
    ) -> list[Translation]:
        """Translates each text; output i belongs to text i.

        White space at both ends is left out, a text of several lines is translated line by line, and blank gives
        blank. A text longer than the model was trained for is split at sentence ends. A model of summaries reads a
        text of several lines as one, and only its first max_src_tokens.

        Args:
            texts: Any number of texts.
            generation: Search settings; unset: those saved with the model.
            batch_tokens: Source tokens times hypotheses decoded together.
            is_strict: Refuse a text that would be split.
            on_progress: Called with the number of segments done so far.
            pool: Processes that share the work; unset: this one does it.

        Raises:
            LengthError: With is_strict, a text is longer than the model takes.
            GlassformerError: A process of the pool was killed.
        """
        generation = generation or self.generation
        plans = [self.segments(text, is_strict) for text in texts]
        segments = [segment for plan in plans for line in plan for segment in line]
        outputs = iter(self._translate_segments(segments, generation, batch_tokens, on_progress, pool))
        return [join_lines([[next(outputs) for _ in line] for line in plan]) for plan in plans]

    def align(self, text: str, translation: Translation) -> Alignment:
        """Cross-attention of a translation that this translator made of a (short) text, by the reference equation."""
        src_ids = self._cut(self._encode([as_one_line(text) if self.is_whole else text.strip()])[0])
        tgt_ids = translation.ids
        if not tgt_ids:
            return Alignment(src_pieces=self.src_tokenizer.pieces(src_ids), tgt_pieces=[], weights=[])
        src, tgt = torch.tensor([src_ids]), torch.tensor([[self.model.config.bos_id, *tgt_ids[:-1]]])
        cross = torch.stack(attention_maps(self.model, src, tgt)["cross"])  # [layers, 1, H, T, S]
        return Alignment(
            src_pieces=self.src_tokenizer.pieces(src_ids),
            tgt_pieces=self.tokenizer.pieces(tgt_ids),
            weights=cross.mean((0, 2))[0].tolist(),
        )

    def new_decoding(self, src: Tensor, max_length: int) -> Decoding:
        """What the search asks for its votes: src [B, S], at most max_length target tokens a row."""
        return ModelDecoding(self.model, max_length=max_length, src=src)

    def segments(self, text: str, is_strict: bool = False) -> list[list[str]]:
        """Lines, each as the segments to translate; a blank line has none. A text that is read whole is one line."""
        lines, how = [], "cut" if self.is_whole else "split at sentence ends"
        for line in [as_one_line(text)] if self.is_whole else map(str.strip, text.split("\n")):
            if is_strict and line and self._n_tokens(line) > self.max_src_tokens:
                raise LengthError(
                    f"A text has {self._n_tokens(line)} tokens.",
                    f"The model takes at most {self.max_src_tokens}.",
                    f"Shorten it, or leave out --strict to have it {how}.",
                )
            parts = [line] if self.is_whole else split_long(line, self._n_tokens, self.max_src_tokens)
            lines.append(parts if line else [])
        return lines

    def _n_tokens(self, text: str) -> int:
        return len(self._encode([text])[0])

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of sources behind the prefix of the task, as the model reads them but for their length."""
        texts = [self.prefix + text for text in texts]
        return self.src_tokenizer.encode_batch(texts, add_bos=self.model.config.use_bos, add_eos=True)

    def _cut(self, ids: list[int]) -> list[int]:
        """At most max_src_tokens ids, the end token among them. (A text that is split is short enough already.)"""
        is_long = self.is_whole and len(ids) > self.max_src_tokens
        return [*ids[: self.max_src_tokens - 1], ids[-1]] if is_long else ids

    def _translate_segments(
        self,
        segments: list[str],
        generation: GenerationConfig,
        batch_tokens: int,
        on_progress: Callable[[int], None] | None,
        pool: TranslatorPool | None,
    ) -> list[Translation]:
        whole = self._encode(segments)
        sources = [self._cut(ids) for ids in whole]
        n_rows = generation.n_best if generation.do_sample else generation.beam_size
        order = sorted(range(len(segments)), key=lambda i: len(sources[i]), reverse=True)
        batches = []  # of like lengths; the longest come first
        while order:
            size = max(1, batch_tokens // (len(sources[order[0]]) * n_rows))
            batches.append(order[:size])
            order = order[size:]
        work = [([sources[i] for i in batch], [segments[i] for i in batch]) for batch in batches]
        found = pool.search(work, generation) if pool else (self.search(*batch, generation) for batch in work)
        outputs: dict[int, Translation] = {}
        for batch, results in zip(batches, found, strict=True):
            outputs |= {i: self.translation_of(hypotheses) for i, hypotheses in zip(batch, results, strict=True)}
            if on_progress is not None:
                on_progress(len(outputs))
        n_unread = [len(ids) - len(cut) for ids, cut in zip(whole, sources, strict=True)]
        return [replace(outputs[i], n_unread_tokens=n) if n else outputs[i] for i, n in enumerate(n_unread)]

    def search(
        self, sources: list[list[int]], texts: list[str], generation: GenerationConfig
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each source of one batch, best first; the texts give sampling its seeds."""
        limits = [self.limit(len(source), generation) for source in sources]
        return generate(
            *self.decoding(sources, limits),
            generation,
            eos_ids=[self.tokenizer.eos_id],
            forbidden_ids=self.forbidden_ids,
            max_new_tokens=torch.tensor(limits),
            seeds=[seed_of(text) for text in texts] if generation.do_sample else None,
        )

    def limit(self, n_src: int, generation: GenerationConfig) -> int:
        """Most target tokens for a source of n_src tokens; depends on this source alone."""
        limit = generation.max_new_tokens
        if limit is None:
            limit = max(int(generation.max_length_a * n_src) + generation.max_length_b, generation.min_new_tokens)
        bound = self.model.config.max_positions
        return limit if bound is None else min(limit, bound)

    def decoding(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> tuple[Decoding, Tensor]:
        """The sources as one batch, and the start tokens [B, 1] that their outputs follow on."""
        device = self.model.decoder.embedding.tokens.weight.device
        rows = [torch.tensor(source) for source in sources]
        src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.src_tokenizer.pad_id)
        start = torch.full((len(sources), 1), self.model.config.bos_id, device=device)
        return self.new_decoding(src.to(device), max(limits) + 1), start

    def source_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """What the model reads for each segment: at most max_src_tokens ids."""
        return [self._cut(ids) for ids in self._encode(list(texts))]

    def translation_of(self, hypotheses: list[Hypothesis]) -> Translation:
        """The translation of one segment: the best hypothesis, with the others as its alternatives."""
        best, *others = [
            Translation(
                text=self.tokenizer.decode(hypothesis.ids),
                score=hypothesis.score,
                log_prob=hypothesis.log_prob,
                ids=hypothesis.ids,
                tokens=self.tokenizer.pieces(hypothesis.ids),
                finish_reason=hypothesis.finish_reason,
                n_segments=1,
            )
            for hypothesis in hypotheses
        ]
        return replace(best, alternatives=others)


def join_lines(lines: list[list[Translation]]) -> Translation:
    """One translation from those of a text's lines and segments."""
    parts = [part for line in lines for part in line]
    if not parts:
        return Translation(text="\n" * (len(lines) - 1))
    if len(lines) == 1 and len(parts) == 1:
        return parts[0]
    return Translation(
        text="\n".join(" ".join(part.text for part in line) for line in lines),
        score=sum(part.score or 0.0 for part in parts),
        log_prob=sum(part.log_prob or 0.0 for part in parts),
        ids=[id_ for part in parts for id_ in part.ids],
        tokens=[token for part in parts for token in part.tokens],
        finish_reason="length" if any(part.finish_reason == "length" for part in parts) else "eos",
        n_segments=len(parts),
    )
