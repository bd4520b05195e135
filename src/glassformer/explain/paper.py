"""Each choice of a config against "Attention Is All You Need" (Vaswani et al. 2017, arXiv 1706.03762)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

from glassformer.config import Config

__all__ = ["FACTS", "Comparison", "Fact", "compare"]

Verdict = Literal["same", "different", "not in the paper"]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One choice of the paper. `paper` has the values of both its models, base first; empty: it does not say."""

    setting: str  # section.field of the config, or section.property
    section: str
    paper: tuple[object, ...] = ()
    says: str  # in its words
    why: str  # what depends on it
    test: Callable[[Config], bool] | None = None  # unset: the value is one of `paper`

    def value(self, config: Config) -> Any:
        return reduce(getattr, self.setting.split("."), config)

    def verdict(self, config: Config) -> Verdict:
        if self.test is None and not self.paper:
            return "not in the paper"
        is_same = self.test(config) if self.test is not None else self.value(config) in self.paper
        return "same" if is_same else "different"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One row of the table."""

    setting: str
    yours: object
    paper: str
    section: str
    verdict: Verdict
    why: str


def compare(config: Config, *, sections: tuple[str, ...]) -> list[Comparison]:
    """Sets the named sections of a config against the paper.

    Args:
        config: Any config; what does not apply to its family is left out.
        sections: Of `Config`: model, tokenizer, data, training, generation.
    """
    return [
        Comparison(
            setting=fact.setting,
            yours=fact.value(config),
            paper=fact.says,
            section=fact.section,
            verdict=fact.verdict(config),
            why=fact.why,
        )
        for fact in FACTS
        if fact.setting.partition(".")[0] in sections and _applies(fact.setting, config)
    ]


def _applies(setting: str, config: Config) -> bool:
    model, name = config.model, setting.partition(".")[2]
    return {
        "n_encoder_layers": model.family != "decoder-only",
        "n_decoder_layers": model.family != "encoder-only",
        "window": model.family != "encoder-only",
        "sinusoid_layout": model.positions in ("sinusoidal", "rotary"),
        "use_norm_bias": model.norm == "layernorm",
        "scale_logits": model.family != "encoder-only",
    }.get(name, True)


def _paper_rate(config: Config) -> bool:
    """Whether the peak of the rate is that of equation 3, at its last step of warm-up."""
    lr, warmup = config.training.lr, config.training.warmup_steps
    return lr is not None and bool(warmup) and math.isclose(lr, (config.model.d_model * warmup) ** -0.5, rel_tol=0.02)  # type: ignore[operator]


FACTS = (
    # -- the architecture -----------------------------------------------------------------------------------------
    Fact(
        setting="model.family",
        section="3",
        paper=("encoder-decoder",),
        says="encoder-decoder",
        why="One stack reads the source in both directions, the other writes left to right and looks at it.",
    ),
    Fact(
        setting="model.n_encoder_layers",
        section="3.1",
        paper=(6,),
        says="6",
        why="Depth: how often tokens can exchange what they have learned of each other.",
    ),
    Fact(
        setting="model.n_decoder_layers",
        section="3.1",
        paper=(6,),
        says="6",
        why="Depth; each layer costs a step of latency for each token written.",
    ),
    Fact(
        setting="model.d_model",
        section="3.1, table 3",
        paper=(512, 1024),
        says="512; big 1024",
        why="Width of the residual stream: parameters and FLOPs grow with its square.",
    ),
    Fact(
        setting="model.n_heads",
        section="3.2.2, table 3",
        paper=(8, 16),
        says="8; big 16",
        why="How many places a token can look at in one layer.",
    ),
    Fact(
        setting="model.head_width",
        section="3.2.2",
        paper=(64,),
        says="d_k = d_v = 64",
        why="Narrow heads tell fewer keys apart (table 3, rows A and B).",
    ),
    Fact(
        setting="model.kv_heads",
        section="3.2.2",
        says="keys and values of its own for each head",
        test=lambda config: config.model.kv_heads == config.model.n_heads,
        why="Sharing them makes the cache of decoding smaller, at little loss (Ainslie et al. 2023).",
    ),
    Fact(
        setting="model.d_ff",
        section="3.3, table 3",
        paper=(2048, 4096),
        says="2048; big 4096: four times d_model",
        why="With four times d_model, two thirds of an encoder block's parameters lie here.",
    ),
    Fact(
        setting="model.activation",
        section="3.3, eq. 2",
        paper=("relu",),
        says="max(0, x)",
        why="relu gives exact zeros; gelu and silu are smooth and let small negative values pass.",
    ),
    Fact(
        setting="model.is_gated",
        section="3.3, eq. 2",
        paper=(False,),
        says="two matrices, no gate",
        why="A gate is a third matrix: better for the same size in later models (Shazeer 2020).",
    ),
    Fact(
        setting="model.use_ffn_bias",
        section="3.3, eq. 2",
        paper=(True,),
        says="b_1 and b_2",
        why="Biases shift where the activation begins.",
    ),
    Fact(
        setting="model.use_attention_bias",
        section="3.2.2",
        paper=(False,),
        says="projections are matrices",
        why="Few parameters; a bias of K changes nothing, since the softmax cancels it.",
    ),
    Fact(
        setting="model.norm_placement",
        section="3.1",
        paper=("post",),
        says="post: LayerNorm(x + Sublayer(x))",
        why="pre-norm leaves a clean identity way: it trains deep stacks without a long warm-up (Xiong et al. 2020).",
    ),
    Fact(
        setting="model.use_final_norm",
        section="3.1",
        paper=(False,),
        says="none beyond those of the sub-layers",
        why="post-norm ends in a norm already; pre-norm needs one for the stream, which grows with depth.",
    ),
    Fact(
        setting="model.norm",
        section="3.1",
        paper=("layernorm",),
        says="LayerNorm (Ba et al. 2016)",
        why="rmsnorm leaves out the mean: cheaper, about as good (Zhang & Sennrich 2019).",
    ),
    Fact(
        setting="model.use_norm_bias",
        section="3.1",
        paper=(True,),
        says="gain and bias, as in Ba et al.",
        why="The shift after each norm.",
    ),
    Fact(
        setting="model.norm_eps",
        section="3.1",
        says="not stated (the authors' code: 1e-6)",
        why="Guards the root of a variance near 0; matters when weights move between programs.",
    ),
    Fact(
        setting="model.positions",
        section="3.5",
        paper=("sinusoidal",),
        says="sinusoidal",
        why="Without order a sentence is a bag of words. Fixed sines reach any length; "
        "learned ones end with their table; rotary, t5_relative and alibi give distances to the scores.",
    ),
    Fact(
        setting="model.sinusoid_layout",
        section="3.5",
        paper=("interleaved",),
        says="sine at 2i, cosine at 2i + 1",
        why="The order of features only; it must agree when weights move between programs.",
    ),
    Fact(
        setting="model.max_positions",
        section="3.5",
        paper=(None,),
        says="unbounded",
        why="A learned table ends; sines go on.",
    ),
    Fact(
        setting="model.scale_embedding",
        section="3.4",
        paper=(True,),
        says="embeddings times sqrt(d_model)",
        why="Brings token vectors to the size of the positions that are added to them.",
    ),
    Fact(
        setting="model.scale_scores",
        section="3.2.1, eq. 1",
        paper=(True,),
        says="scores over sqrt(d_k)",
        why="Keeps the softmax out of saturation, where its gradient dies.",
    ),
    Fact(
        setting="model.scale_logits",
        section="3.4",
        paper=(False,),
        says="none",
        why="Tied tables without scaled embeddings (T5) need smaller logits.",
    ),
    Fact(
        setting="model.tying",
        section="3.4",
        paper=("all",),
        says="both embeddings and the output share one matrix",
        why="Saves two tables of vocab_size x d_model (Press & Wolf 2017).",
    ),
    Fact(
        setting="model.use_output_bias",
        section="3.4",
        says="not stated",
        why="One number a word: its frequency, before any context.",
    ),
    Fact(
        setting="model.use_embedding_norm",
        section="3.4",
        paper=(False,),
        says="none",
        why="BERT has one; it steadies the first layer.",
    ),
    Fact(
        setting="model.window",
        section="3.2.3",
        paper=(None,),
        says="all earlier tokens",
        why="A window bounds the cost of long texts and what can be remembered.",
    ),
    Fact(
        setting="model.vocab_size",
        section="5.1",
        paper=(32000, 37000),
        says="about 37,000 (English-French: 32,000)",
        why="More entries: shorter sequences, larger tables, rarer rows that learn less.",
    ),
    Fact(
        setting="model.dropout",
        section="5.4, table 3",
        paper=(0.1, 0.3),
        says="0.1; big 0.3 (English-French: 0.1)",
        why="On each sub-layer's output and the embeddings: the less data, the more of it.",
    ),
    Fact(
        setting="model.attention_dropout",
        section="5.4",
        paper=(0.0,),
        says="none named",
        why="Hides keys at random while training.",
    ),
    Fact(
        setting="model.ffn_dropout",
        section="5.4",
        paper=(0.0,),
        says="none named",
        why="Hides features inside the feed-forward network while training.",
    ),
    # -- data and training ----------------------------------------------------------------------------------------
    Fact(
        setting="tokenizer.kind",
        section="5.1",
        paper=("bpe", "wordpiece"),
        says="byte-pair encoding (English-French: word-pieces)",
        why="Sub-words: rare words split, nothing is unknown.",
    ),
    Fact(
        setting="tokenizer.is_shared",
        section="5.1",
        paper=(True,),
        says="one vocabulary for both languages",
        why="Names and numbers are one entry; needed for one shared table.",
    ),
    Fact(
        setting="data.batch_tokens",
        section="5.1",
        paper=(50000,),
        says="about 25,000 source and 25,000 target tokens",
        why="Larger batches: a steadier gradient and a higher rate, fewer updates an hour.",
    ),
    Fact(
        setting="training.steps",
        section="5.2",
        paper=(100_000, 300_000),
        says="100,000; big 300,000",
        why="How long it learns; beyond a point it learns the training data by heart.",
    ),
    Fact(
        setting="training.optimizer",
        section="5.3",
        paper=("adamw",),
        says="Adam (here: adamw with weight_decay=0)",
        why="A rate of its own for each parameter.",
    ),
    Fact(setting="training.beta1", section="5.3", paper=(0.9,), says="0.9", why="Memory of the direction."),
    Fact(
        setting="training.beta2",
        section="5.3",
        paper=(0.98,),
        says="0.98",
        why="Memory of the gradient's size: about 50 updates; the usual 0.999 remembers 1,000.",
    ),
    Fact(
        setting="training.adam_eps",
        section="5.3",
        paper=(1e-9,),
        says="1e-9",
        why="The smallest gradient that counts as one.",
    ),
    Fact(
        setting="training.weight_decay",
        section="5.3",
        paper=(0.0,),
        says="none",
        why="Pulls weights to 0: a little regularisation.",
    ),
    Fact(
        setting="training.schedule",
        section="5.3, eq. 3",
        paper=("inverse_sqrt",),
        says="linear warm-up, then 1/sqrt(step)",
        why="inverse_sqrt can go on for ever; wsd and cosine end at zero and gain from it when the end is known.",
    ),
    Fact(
        setting="training.warmup_steps",
        section="5.3",
        paper=(4000,),
        says="4000",
        why="Post-norm needs it: early gradients are large.",
    ),
    Fact(
        setting="training.lr",
        section="5.3, eq. 3",
        says="(d_model · warm-up)^-0.5: 7.0e-4 for base",
        test=_paper_rate,
        why="The peak rate; the most important number of a run.",
    ),
    Fact(
        setting="training.label_smoothing",
        section="5.4",
        paper=(0.1,),
        says="0.1",
        why="Costs perplexity, gains BLEU and accuracy.",
    ),
    Fact(setting="training.max_grad_norm", section="5.3", says="not stated", why="Shortens a rare huge gradient."),
    Fact(
        setting="training.average_last",
        section="6.1",
        paper=(5, 20),
        says="the last 5 checkpoints; big 20",
        why="A mean of late weights smooths the noise of single updates.",
    ),
    # -- decoding -------------------------------------------------------------------------------------------------
    Fact(
        setting="generation.beam_size",
        section="6.1",
        paper=(4,),
        says="4",
        why="More hypotheses: a little better, as many times slower.",
    ),
    Fact(
        setting="generation.length_penalty",
        section="6.1",
        paper=("gnmt",),
        says="that of Wu et al. 2016",
        why="Sums of log-probabilities favour short outputs; the penalty evens this out.",
    ),
    Fact(setting="generation.alpha", section="6.1", paper=(0.6,), says="0.6", why="Strength of that penalty."),
    Fact(
        setting="generation.max_length_b",
        section="6.1",
        says="at most input length + 50 tokens",
        test=lambda config: (
            config.generation.max_new_tokens is None
            and (config.generation.max_length_a, config.generation.max_length_b) == (1.0, 50)
        ),
        why="Ends outputs that would go on for ever. Here: max_length_a · input + max_length_b.",
    ),
)
