"""One text through the path that serves: fused kernels, float32, a KV cache while decoding."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from glassformer.config import GenerationConfig
from glassformer.errors import UserError
from glassformer.explain.tokens import Tokens
from glassformer.explain.trace import Trace, WatchedDecoding, run_whole, watch
from glassformer.generation.decoding import Decoding
from glassformer.generation.search import generate
from glassformer.model import DecoderOnly, EncoderDecoder, EncoderOnly
from glassformer.tasks import Translator
from glassformer.tasks.decoding import ModelDecoding
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.model_folder import ModelFolder

__all__ = ["Served", "serve"]

NEW_TOKENS = 12  # that a prompt is continued by where max_new_tokens is unset


@dataclass(frozen=True, kw_only=True)
class Served:
    """What one run of the serving path read, wrote and computed."""

    output: str
    src: Tokens | None
    tgt: Tokens | None  # what the decoder read: the start, then its own output but for the last token
    chosen: Tokens | None  # what it wrote
    trace: Trace
    generation: GenerationConfig
    decoding: WatchedDecoding | None = None
    forbidden: list[int] = field(default_factory=list)  # ids that the search never takes
    log_prob: float | None = None  # of the output, as the search summed it; None without a search
    n_prompt: int = 0  # tokens of `tgt` that were given
    limit: int | None = None  # most tokens that the search made; None without a search

    @property
    def src_ids(self) -> Tensor | None:
        return None if self.src is None else torch.tensor([self.src.ids])

    @property
    def tgt_ids(self) -> Tensor | None:
        return None if self.tgt is None else torch.tensor([self.tgt.ids])

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What the model's `forward` takes to see the same tokens at once."""
        return tuple(ids for ids in (self.src_ids, self.tgt_ids) if ids is not None)


class _WatchedTranslator(Translator):
    """The translator itself, with a notebook at its search."""

    watched: WatchedDecoding | None = None
    src: Tensor | None = None  # [1, S], what the encoder was given

    def new_decoding(self, src: Tensor, max_length: int) -> Decoding:
        self.src, self.watched = src, WatchedDecoding(super().new_decoding(src, max_length))
        return self.watched

    def source(self) -> list[int]:
        assert self.src is not None
        ids: list[int] = self.src[0].tolist()
        return ids


def serve(
    folder: ModelFolder, text: str, *, target: str | None = None, generation: GenerationConfig | None = None
) -> Served:
    """Runs the model of a folder on one text, as it is served.

    Args:
        folder: Any family.
        text: A sentence to translate, a prompt to go on with, or a text to read.
        target: An output to follow in place of the search (encoder-decoder only).
        generation: Search settings; unset: those of the folder. Sampling is replaced by search.

    Raises:
        UserError: A blank text, or a text that would be split.
    """
    if not text.strip():
        raise UserError("The text is blank.", "One sentence was expected.", "Give a text of at least one word.")
    settings = replace(generation or folder.config.generation, do_sample=False)
    if target is not None and not isinstance(folder.model, EncoderDecoder):
        raise UserError(
            f"A target was given with a model of the family {folder.config.model.family}.",
            "Only an encoder-decoder has a target.",
            "Leave it out.",
        )
    if isinstance(folder.model, EncoderDecoder):
        if target is not None:
            return _follow(folder, folder.model, text.strip(), target, settings)
        return _translate(folder, folder.model, text.strip(), settings)
    if isinstance(folder.model, DecoderOnly):
        return _continue(folder, folder.model, text, replace(settings, n_best=1))
    return _read(folder, folder.model, text)


def _translate(folder: ModelFolder, model: EncoderDecoder, text: str, generation: GenerationConfig) -> Served:
    translator = _WatchedTranslator.of(folder)
    with watch(model) as calls:
        (translation,) = translator.translate([text], generation=generation, is_strict=True)
    if translation.n_segments != 1 or translator.watched is None:
        raise UserError(
            f"The text has {translation.n_segments} lines.", "One sentence was expected.", "Explain them one by one."
        )
    ids, decoding = translation.ids, translator.watched
    read = [*decoding.steps[0][0], *ids[:-1]]
    return Served(
        output=translation.text,
        src=Tokens.of(folder.src_tokenizer, translator.source()),
        tgt=Tokens.of(folder.tokenizer, read),
        chosen=Tokens.of(folder.tokenizer, ids),
        trace=Trace.of(calls, decoding.lineage(read)),
        generation=generation,
        decoding=decoding,
        forbidden=translator.forbidden_ids,
        log_prob=translation.log_prob,
        n_prompt=1,
        limit=translator.limit(len(translator.source()), generation),
    )


def _follow(folder: ModelFolder, model: EncoderDecoder, text: str, target: str, generation: GenerationConfig) -> Served:
    """The cached decoder reads a given target, a token a step, as if the search had chosen it."""
    translator = _WatchedTranslator.of(folder)
    # One token is decoded, for the source as the translator reads it.
    one = replace(generation, beam_size=1, n_best=1, min_new_tokens=0, max_new_tokens=1)
    translator.translate([text], generation=one, is_strict=True)
    src, ids = translator.source(), folder.tokenizer.encode(target.strip(), add_eos=True)
    read = [model.config.bos_id, *ids[:-1]]
    decoding = WatchedDecoding(ModelDecoding(model, max_length=len(read), src=torch.tensor([src])))
    with watch(model) as calls, torch.no_grad():
        decoding.prefill(torch.tensor([read[:1]]))
        for token in read[1:]:
            decoding.step(torch.tensor([token]))
    return Served(
        output=target.strip(),
        src=Tokens.of(folder.src_tokenizer, src),
        tgt=Tokens.of(folder.tokenizer, read),
        chosen=Tokens.of(folder.tokenizer, ids),
        trace=Trace.of(calls, [0] * len(read)),
        generation=generation,
        decoding=decoding,
        forbidden=translator.forbidden_ids,
        n_prompt=1,
    )


def _continue(folder: ModelFolder, model: DecoderOnly, text: str, generation: GenerationConfig) -> Served:
    tokenizer, generator = folder.tokenizer, TextGenerator(model, folder.tokenizer, generation)
    prompt = generator.prompt_ids(text)
    limit = generation.max_new_tokens or NEW_TOKENS
    bound = model.config.max_positions
    limit = limit if bound is None else max(1, min(limit, bound - len(prompt)))
    decoding = WatchedDecoding(ModelDecoding(model, max_length=len(prompt) + limit))
    with watch(model) as calls:
        ((hypothesis,),) = generate(
            decoding,
            torch.tensor([prompt]),
            generation,
            eos_ids=[tokenizer.eos_id],
            forbidden_ids=generator.forbidden_ids,
            max_new_tokens=torch.tensor([limit]),
        )
    read = [*prompt, *hypothesis.ids[:-1]]
    return Served(
        output=tokenizer.decode(hypothesis.ids),
        src=None,
        tgt=Tokens.of(tokenizer, read),
        chosen=Tokens.of(tokenizer, hypothesis.ids),
        trace=Trace.of(calls, decoding.lineage(read)),
        generation=generation,
        decoding=decoding,
        forbidden=generator.forbidden_ids,
        log_prob=hypothesis.log_prob,
        n_prompt=len(prompt),
        limit=limit,
    )


def _read(folder: ModelFolder, model: EncoderOnly, text: str) -> Served:
    """An encoder reads a text between its two marks; `<mask>` in the text is the mask token."""
    ids = folder.tokenizer.encode(text, add_bos=model.config.use_bos, add_eos=True, allow_special=True)
    with watch(model) as calls, torch.no_grad():
        run_whole(model, torch.tensor([ids]))
    return Served(
        output="",
        src=Tokens.of(folder.tokenizer, ids),
        tgt=None,
        chosen=None,
        trace=Trace.of(calls),
        generation=folder.config.generation,
    )
