"""From a batch of prefixes to hypotheses: chooses greedy decoding, beam search or sampling by the config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from glassformer.config import GenerationConfig
from glassformer.errors import ConfigError
from glassformer.generation.beam import BeamSearch
from glassformer.generation.decoding import Decoding, is_identity
from glassformer.generation.hypothesis import Hypothesis, LengthPenalty
from glassformer.generation.processors import (
    Forbid,
    ForcedEnd,
    ForcedPrefix,
    MinLength,
    MinP,
    NoRepeatNGram,
    RepetitionPenalty,
    Rule,
    Rules,
    Temperature,
    TopK,
    TopP,
)
from glassformer.generation.sampling import Chooser, Greedy, Made, RowSearch, Sampler, hypotheses_of
from glassformer.generation.terms import EosStop, LengthStop, Terms

__all__ = ["begin_search", "build_filters", "build_rules", "generate", "generate_steps"]


def build_rules(
    config: GenerationConfig,
    n_rows: int,
    *,
    eos_ids: Sequence[int],
    forbidden_ids: Sequence[int],
    limits: Sequence[int] | None = None,
    forced: Sequence[Sequence[int]] | None = None,
) -> list[Rule]:
    """Builds the rules that hold for every way of decoding; what the config leaves off has no rule.

    Args:
        limits: Most tokens of each row, at which a forced end stands.
        forced: First tokens of each row.
    """
    rules: list[Rule] = []
    if config.repetition_penalty != 1:
        rules.append(RepetitionPenalty(config.repetition_penalty))
    if config.no_repeat_ngram_size:
        rules.append(NoRepeatNGram(config.no_repeat_ngram_size, n_rows))
    if config.min_new_tokens:
        rules.append(MinLength(config.min_new_tokens, eos_ids))
    if forbidden_ids:
        rules.append(Forbid(forbidden_ids))
    # What is forced comes last: it stands above what is forbidden.
    if config.is_eos_forced and limits is not None:
        rules.append(ForcedEnd(torch.tensor(limits), eos_ids[0]))
    if forced is not None:
        rules.append(ForcedPrefix(forced))
    return rules


def build_filters(config: GenerationConfig) -> Rules:
    """Builds what narrows a distribution before a token is drawn, in this order: temperature, top-k, top-p, min-p."""
    filters: list[Rule] = []
    if config.temperature != 1:
        filters.append(Temperature(config.temperature))
    if config.top_k:
        filters.append(TopK(config.top_k))
    if config.top_p < 1:
        filters.append(TopP(config.top_p))
    if config.min_p:
        filters.append(MinP(config.min_p))
    return Rules(filters)


@torch.inference_mode()
def generate(
    decoding: Decoding,
    prefix: Tensor,
    config: GenerationConfig,
    *,
    eos_ids: Sequence[int],
    max_new_tokens: Tensor,
    forbidden_ids: Sequence[int] = (),
    forced: Sequence[Sequence[int]] | None = None,
    seeds: Sequence[int] | None = None,
    stop: Callable[[int, int], bool] | None = None,
) -> list[list[Hypothesis]]:
    """Makes outputs for a batch of B items; no item's output depends on the other items.

    `beam_size = 1` is greedy decoding, larger ones beam search; with `do_sample`, `n_best` outputs are drawn for each
    item. Logits rules are applied before normalisation, see `Hypothesis`.

    Args:
        decoding: B rows, one for each item.
        prefix: int64 [B, T], T >= 1, what the outputs follow on, such as the start token. Not part of the output.
        eos_ids: Tokens that end an output.
        max_new_tokens: int64 [B], most tokens made for each item; 0 gives an empty output that counts as cut.
        forbidden_ids: Tokens that are never made.
        forced: First tokens of each item's output, B sequences of any lengths; part of the output, probability 1.
        seeds: B numbers; an item's random numbers come from (config.seed, its seed, number of the draw), so a caller
            that derives them from the texts gets the same draws in any batch. Unset: 0 to B - 1.
        stop: (row, its next token) -> whether its text ends there. Beam search ranks whole texts and does not ask.

    Returns:
        B lists. Beam search: up to `n_best` hypotheses, scores non-increasing. Sampling: `n_best`, in order of drawing.

    Raises:
        ConfigError: An item's limit is below `min_new_tokens` or below its forced tokens, or one of these is no id.
        GenerationError: Logits are not finite, or the rules leave an item no token.
    """
    limits: list[int] = max_new_tokens.tolist()
    penalty = LengthPenalty(config.length_penalty, config.alpha)
    results = [[] if limit else [Hypothesis.of(item, [], [], "length", penalty)] for item, limit in enumerate(limits)]
    forced = _forced(config, forced, limits)
    if not any(limits):
        return results
    search = _begun(decoding, prefix, config, range(len(limits)), limits, eos_ids, forbidden_ids, forced, seeds, stop)
    if isinstance(search, RowSearch):
        for hypothesis in hypotheses_of(search):
            results[hypothesis.item].append(hypothesis)
        return results
    while not search.is_done:
        for item, found in search.step():
            results[item] = found
    return results


@torch.no_grad()
def begin_search(
    decoding: Decoding,
    prefix: Tensor,
    config: GenerationConfig,
    *,
    items: Sequence[int],
    eos_ids: Sequence[int],
    max_new_tokens: Sequence[int],
    forbidden_ids: Sequence[int] = (),
    seeds: Sequence[int] | None = None,
    n_top: Sequence[int] | None = None,
) -> BeamSearch | RowSearch:
    """Reads the prefixes, for a caller that makes the steps itself, under `torch.no_grad`. Searches of one config and
    model can be joined, and what comes of an item is what `generate` makes of it.

    Args: as for `generate`; each limit is at least 1, and
        items: Their numbers, different from those of any search that this one will be joined with.
        n_top: How many of the likeliest tokens `Made.top` has of each item, before what narrows a draw. Not of beams.
    """
    forced = _forced(config, None, max_new_tokens)
    search = _begun(decoding, prefix, config, items, max_new_tokens, eos_ids, forbidden_ids, forced, seeds)
    if n_top is not None and isinstance(search, RowSearch):
        search.n_top = list(n_top)
    return search


def generate_steps(
    decoding: Decoding,
    prefix: Tensor,
    config: GenerationConfig,
    *,
    eos_ids: Sequence[int],
    max_new_tokens: Tensor,
    forbidden_ids: Sequence[int] = (),
    seeds: Sequence[int] | None = None,
) -> Iterator[list[Made]]:
    """`generate`, one output for each item, token by token: the same tokens, as soon as they are made.

    Args: as for `generate`; each limit is at least 1. Stop asking, and nothing more is computed.

    Raises:
        ConfigError: The config asks for beam search, whose first token is known last, or for several outputs.
    """
    if config.n_best > 1 or (config.beam_size > 1 and not config.do_sample):
        raise ConfigError(
            f"beam_size={config.beam_size} and n_best={config.n_best} cannot be streamed.",
            "The first token of one output must be final before the last one is made.",
            "Use n_best=1, and beam_size=1 or do_sample.",
        )
    limits: list[int] = max_new_tokens.tolist()
    forced = _forced(config, None, limits)

    @torch.no_grad()
    def steps() -> Iterator[list[Made]]:
        items = range(len(limits))
        search = _begun(decoding, prefix, config, items, limits, eos_ids, forbidden_ids, forced, seeds)
        assert isinstance(search, RowSearch)
        while not search.is_done:
            yield search.step()

    return steps()


def _forced(
    config: GenerationConfig, forced: Sequence[Sequence[int]] | None, limits: Sequence[int]
) -> Sequence[Sequence[int]] | None:
    """First tokens of each item's output; raises ConfigError when an item's limit leaves no room for what it must."""
    if config.forced_bos_id is not None:
        forced = [[config.forced_bos_id, *row] for row in forced or [[]] * len(limits)]
    _check_limits(limits, config.min_new_tokens, forced)
    return forced


def _begun(
    decoding: Decoding,
    prefix: Tensor,
    config: GenerationConfig,
    items: Sequence[int],
    limits: Sequence[int],
    eos_ids: Sequence[int],
    forbidden_ids: Sequence[int],
    forced: Sequence[Sequence[int]] | None,
    seeds: Sequence[int] | None,
    stop: Callable[[int, int], bool] | None = None,
) -> BeamSearch | RowSearch:
    """The search over the items whose limit is not 0, each drawn `n_best` times where outputs are drawn."""
    n_draws = config.n_best if config.do_sample else 1
    places = [place for place, limit in enumerate(limits) if limit for _ in range(n_draws)]  # of each row's item
    logits = decoding.prefill(prefix)
    rows = torch.tensor(places, device=logits.device)
    if not is_identity(rows, len(prefix)):
        decoding.select(rows)
        logits = logits[rows]
    row_limits = [limits[place] for place in places]
    if forced is not None:
        _check_forced(forced, logits.shape[1])
        forced = [forced[place] for place in places]
    rules = build_rules(
        config, len(places), eos_ids=eos_ids, forbidden_ids=forbidden_ids, limits=row_limits, forced=forced
    )
    terms = Terms(
        items=[items[place] for place in places],
        rules=Rules(rules),
        eos=EosStop(eos_ids, logits.device),
        limit=LengthStop(row_limits),
        penalty=LengthPenalty(config.length_penalty, config.alpha),
        stop=stop,
    )
    if config.beam_size > 1 and not config.do_sample:
        return BeamSearch(decoding, logits, terms, beam_size=config.beam_size, n_best=config.n_best)
    seeds = range(len(limits)) if seeds is None else seeds
    return RowSearch(decoding, logits, terms, _chooser(config, [seeds[place] for place in places], n_draws))


def _chooser(config: GenerationConfig, seeds: Sequence[int], n_draws: int) -> Chooser:
    """`seeds`: that of each row's item."""
    if not config.do_sample:
        return Greedy()
    streams = [(config.seed, seed, row % n_draws) for row, seed in enumerate(seeds)]
    return Sampler(build_filters(config), streams)


def _check_limits(limits: Sequence[int], min_new_tokens: int, forced: Sequence[Sequence[int]] | None) -> None:
    for item, limit in enumerate(limits):
        n_forced = len(forced[item]) if forced is not None else 0
        for name, value in (("min_new_tokens", min_new_tokens), ("forced tokens", n_forced)):
            if value > limit:
                raise ConfigError(
                    f"{name}={value} is more than max_new_tokens={limit} of item {item}.",
                    "The limit must leave room for them.",
                    "Raise max_new_tokens, or max_length_b when it is unset.",
                )


def _check_forced(forced: Sequence[Sequence[int]], vocab_size: int) -> None:
    for token in {token for row in forced for token in row}:
        if not 0 <= token < vocab_size:
            raise ConfigError(
                f"The forced token {token} (forced_bos_id?) is no id of the model.",
                f"Ids run from 0 to {vocab_size - 1}.",
                "Set forced_bos_id to one of these, or leave it unset.",
            )
