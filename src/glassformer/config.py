"""Every setting, its default and its meaning. The comment behind a field is its only description."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from glassformer.errors import ConfigError

__all__ = [
    "Config",
    "DataConfig",
    "EvaluationConfig",
    "GenerationConfig",
    "ModelConfig",
    "PhrasebookConfig",
    "ServeConfig",
    "TaskConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "ValidationConfig",
    "field_comments",
]

Family = Literal["encoder-decoder", "encoder-only", "decoder-only"]
Positions = Literal["sinusoidal", "learned", "rotary", "t5_relative", "alibi", "none"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
Metric = Literal[
    "loss",
    "bleu",
    "chrf",
    "rouge1",
    "rouge2",
    "rougeL",
    "recall@1",
    "recall@10",
    "ndcg@10",
    "mrr",
    "accuracy",
    "macro_f1",
    "micro_f1",
    "entity_f1",
]
MAX_HYPOTHESES = 4096  # of one text: each keeps its own cache, and a typing error must not ask for all memory
Task = Literal["translate", "summarize", "mlm", "classify", "label", "embed", "lm", "denoise"]


@cache
def field_comments(cls: type) -> dict[str, str]:
    """Reads the comment behind each field of a config class: `name: type = default  # comment`."""
    pattern = re.compile(r"^    (\w+): .*?(?:\(\n.*?)?  # (.+)$", re.MULTILINE)  # a formatter may wrap the default
    return dict(pattern.findall(inspect.getsource(cls)))


def _require(is_right: bool, what: str, expected: str, remedy: str) -> None:
    if not is_right:
        raise ConfigError(what, expected, remedy)


def _require_at_least(config: object, minimum: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and value < minimum:
            raise ConfigError(f"{name}={value} is too small.", f"It must be at least {minimum}.", f"Set {name} higher.")


def _require_share(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(0 <= value < 1, f"{name}={value} is not a share.", "It must lie in [0, 1).", f"Set {name}=0.1, say.")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture. Each choice that changes a number is a field, saved with every checkpoint."""

    family: Family = "encoder-decoder"  # which stacks the model has
    vocab_size: int = 8000  # V: rows of the (target) token table and columns of the output projection
    src_vocab_size: int | None = None  # rows of the source token table; unset: vocab_size
    d_model: int = 256  # D: width of the residual stream
    d_ff: int = 1024  # F: inner width of the feed-forward network
    n_heads: int = 4  # H: query heads of each attention
    n_kv_heads: int | None = None  # G: key and value heads, shared by H/G query heads each; unset: n_heads
    d_head: int | None = None  # K: width of one head; unset: d_model / n_heads
    n_encoder_layers: int = 3  # blocks of the encoder stack
    n_decoder_layers: int = 3  # blocks of the decoder stack
    positions: Positions = "sinusoidal"  # how order is given to the model
    sinusoid_layout: Literal["interleaved", "halves"] = "interleaved"  # sinusoidal, rotary: pairs i, i+1 or i, i+half
    max_positions: int | None = None  # most positions a text may have; unset: unbounded (not for learned)
    position_offset: int = (
        0  # learned: rows of the table before the first position, read by no token (RoBERTa, BART: 2)
    )
    window: int | None = None  # most keys that a decoder's query sees, itself included; unset: all
    rotary_base: float = 10000.0  # base of the rotary wavelengths
    n_relative_buckets: int = 32  # buckets of the T5-relative bias
    max_relative_distance: int = 128  # distance from which the T5-relative bias is the same
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"  # kind of normalisation
    norm_placement: Literal["pre", "post"] = "pre"  # x + f(norm(x)), or norm(x + f(x)) as in 2017
    norm_eps: float = 1e-5  # epsilon under the root of every norm
    use_embedding_norm: bool = False  # a norm after the embeddings (BERT)
    use_final_norm: bool = True  # a norm after the last block of each stack
    activation: Activation = "relu"  # g of the feed-forward network; gelu is the exact one
    is_gated: bool = False  # feed-forward g(x W_1) * (x W_3) W_2 in place of g(x W_1) W_2
    scale_embedding: bool = True  # multiply token embeddings by sqrt(d_model)
    scale_scores: bool = True  # divide attention scores by sqrt(d_head); T5 does not
    scale_logits: bool = False  # multiply the decoder output by d_model^-0.5 before the projection (tied T5)
    tying: Literal["none", "decoder", "inputs", "all"] = (
        "all"  # which tables share one matrix: target table = output, source table = target table, or all three
    )
    use_attention_bias: bool = False  # biases of the Q, K, V and output projections
    use_ffn_bias: bool = True  # biases of the feed-forward network
    use_norm_bias: bool = True  # beta of LayerNorm
    use_output_bias: bool = False  # bias of the projection to the vocabulary
    use_mlm_head: bool = False  # encoder-only: dense, activation, norm and projection over the vocabulary
    use_pooler: bool = False  # encoder-only: tanh(W x_0 + b) of the first token
    head: Literal["none", "classify", "label"] = "none"  # encoder-only: votes for labels, of each text or of each token
    n_labels: int = 0  # labels that the head votes for
    pooling: Literal["first", "mean", "max"] = "first"  # encoder-only: how one vector is made of a text's tokens
    is_normalized: bool = False  # encoder-only: that vector is brought to length 1
    n_segments: int = 0  # rows of the segment table (BERT: 2); 0: none
    dropout: float = 0.1  # on embeddings and each sub-layer's output, as in 2017
    attention_dropout: float = 0.0  # on the attention weights
    ffn_dropout: float = 0.0  # inside the feed-forward network, after the activation
    pad_id: int | None = 0  # id of the padding token; unset: none, masks must be given
    bos_id: int = 1  # id that starts a target
    use_bos: bool = False  # a text that the model reads begins with the tokenizer's begin token (BERT: [CLS])
    eos_id: int = 2  # id that ends a text
    unk_id: int = 3  # id of an unknown token

    def __post_init__(self) -> None:
        _require_at_least(self, 1, "vocab_size", "src_vocab_size", "d_model", "d_ff", "n_heads", "n_kv_heads")
        _require_at_least(self, 1, "d_head", "max_positions", "max_relative_distance", "window")
        _require_at_least(self, 2, "n_relative_buckets")
        _require_at_least(self, 0, "n_encoder_layers", "n_decoder_layers", "n_segments", "position_offset")
        _require_share(self, "dropout", "attention_dropout", "ffn_dropout")
        _require(
            0 < self.norm_eps < 1, f"norm_eps={self.norm_eps} lies outside (0, 1).", "It guards a root.", "Use 1e-5."
        )
        _require(
            1 < self.rotary_base < math.inf,
            f"rotary_base={self.rotary_base} is out of range.",
            "A finite number above 1 was expected.",
            "Use 10000.",
        )
        if self.d_head is None:
            fit = ", ".join(str(n) for n in range(1, min(self.d_model, 64) + 1) if self.d_model % n == 0)
            _require(
                self.d_model % self.n_heads == 0,
                f"n_heads={self.n_heads} does not divide d_model={self.d_model}.",
                "Every head needs the same width.",
                f"Use {fit}, or set d_head.",
            )
        _require(
            self.n_heads % self.kv_heads == 0,
            f"n_kv_heads={self.n_kv_heads} does not divide n_heads={self.n_heads}.",
            "Each key-value head serves the same number of query heads.",
            "Choose a divisor of n_heads.",
        )
        _require(
            self.positions != "learned" or self.max_positions is not None,
            "positions=learned has no max_positions.",
            "A learned table has one row per position.",
            "Set max_positions, for example 512.",
        )
        _require(
            self.positions != "rotary" or self.head_width % 2 == 0,
            f"positions=rotary with an odd head width ({self.head_width}).",
            "Rotary positions turn pairs of features.",
            "Choose an even d_head.",
        )
        _require(
            self.positions != "t5_relative" or 4 <= self.n_relative_buckets < 2 * self.max_relative_distance,
            f"n_relative_buckets={self.n_relative_buckets} with max_relative_distance={self.max_relative_distance}.",
            "Half of at least 4 buckets hold one distance each, the others those up to max_relative_distance.",
            "Use n_relative_buckets=32 and max_relative_distance=128, say.",
        )
        _require(
            not self.is_source_tied or self.source_vocab_size == self.vocab_size,
            f"tying={self.tying} with src_vocab_size={self.src_vocab_size} and vocab_size={self.vocab_size}.",
            "One matrix cannot have two sizes.",
            "Use one shared vocabulary, or tying=decoder.",
        )
        for name in ("pad_id", "bos_id", "eos_id", "unk_id"):
            value = getattr(self, name)
            _require(
                value is None or 0 <= value < self.vocab_size,
                f"{name}={value} lies outside the vocabulary of {self.vocab_size}.",
                f"Ids run from 0 to {self.vocab_size - 1}.",
                f"Set {name} to the tokenizer's id.",
            )
        for name in ("use_pooler", "use_mlm_head"):
            _require(
                not getattr(self, name) or self.family == "encoder-only",
                f"{name}=True with family={self.family}.",
                "Only an encoder-only model has this head.",
                f"Use family=encoder-only or {name}=False.",
            )
        _require(
            self.head == "none" or (self.family == "encoder-only" and self.n_labels > 0),
            f"head={self.head} with family={self.family} and n_labels={self.n_labels}.",
            "A head over labels stands on an encoder-only model and has at least one label.",
            "Use family=encoder-only and set n_labels, or head=none.",
        )
        _require(
            self.n_segments == 0 or self.family != "decoder-only",
            f"n_segments={self.n_segments} with family=decoder-only.",
            "Segments are added to the input of an encoder.",
            "Use n_segments=0.",
        )
        _require(
            self.window is None or self.family != "encoder-only",
            f"window={self.window} with family=encoder-only.",
            "The window is that of a decoder.",
            "Leave window unset.",
        )
        if self.family != "decoder-only":
            _require_at_least(self, 1, "n_encoder_layers")
        if self.family != "encoder-only":
            _require_at_least(self, 1, "n_decoder_layers")

    @property
    def source_vocab_size(self) -> int:
        """Rows of the source token table."""
        return self.vocab_size if self.src_vocab_size is None else self.src_vocab_size

    @property
    def is_source_tied(self) -> bool:
        """Whether the source token table is the target token table."""
        return self.tying in ("inputs", "all")

    @property
    def is_output_tied(self) -> bool:
        """Whether the projection to the vocabulary is the (target) token table."""
        return self.tying in ("decoder", "all")

    @property
    def kv_heads(self) -> int:
        """G, with the default resolved."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def head_width(self) -> int:
        """K, with the default resolved."""
        return self.d_model // self.n_heads if self.d_head is None else self.d_head


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text becomes ids."""

    kind: Literal["bpe", "wordpiece", "unigram"] = (
        "bpe"  # bpe works on bytes: nothing is unknown, every text comes back
    )
    vocab_size: int | None = None  # entries to learn, specials included; unset: chosen from the size of the data
    is_shared: bool = True  # one vocabulary for both languages
    normalization: Literal["none", "nfc", "nfkc"] = "none"  # Unicode form that texts are brought to first
    n_sentinels: int = 0  # entries <extra_id_0> and on, which stand for hidden spans of text; 100 for denoise
    bpe_dropout: float = 0.0  # share of merges skipped at random in training (sub-word regularisation)
    n_variants: int = 4  # with bpe_dropout: how many tokenisations of the data are stored, one an epoch in turn

    def __post_init__(self) -> None:
        _require_at_least(self, 1, "vocab_size", "n_variants")
        _require_at_least(self, 0, "n_sentinels")
        _require_share(self, "bpe_dropout")
        _require(
            self.bpe_dropout == 0 or self.kind == "bpe",
            f"bpe_dropout={self.bpe_dropout} with kind={self.kind}.",
            "Only BPE has merges to skip.",
            "Use kind=bpe or bpe_dropout=0.",
        )


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """What a model is trained for."""

    name: Task = "translate"  # what the data are, and what is learned from them
    start: str | None = None  # model folder whose vocabulary and weights the run starts from; unset: from nothing
    prefix: str = ""  # text put before every source, such as "summarize: " (T5)
    mask_share: float = 0.15  # mlm, denoise: share of the tokens that are hidden and predicted
    use_whole_words: bool = False  # mlm: hide all pieces of a word together
    mean_span: float = 3.0  # denoise: mean number of tokens hidden behind one sentinel
    is_multi_label: bool = False  # classify: a text may have any number of labels
    use_class_weights: bool = False  # classify, label: rare labels weigh more, by the inverse of their frequency
    has_negatives: bool = False  # embed: columns of a TSV behind the second are hard negatives, not a domain
    similarity_scale: float = 20.0  # embed: factor of the cosines before the softmax over the batch
    min_width: int | None = None  # embed: train also the first 1/2, 1/4 ... of the vector, down to this width

    def __post_init__(self) -> None:
        _require(
            0 < self.mask_share < 1,
            f"mask_share={self.mask_share} is not a share.",
            "(0, 1) was expected.",
            "Use 0.15.",
        )
        for name, low in (("mean_span", 1), ("similarity_scale", 0)):
            value = getattr(self, name)
            _require(
                low <= value < math.inf and value > 0,
                f"{name}={value} is out of range.",
                f"A finite number above {low} was expected.",
                f"Raise {name}.",
            )
        _require_at_least(self, 1, "min_width")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which rows are used, and how they are put into batches."""

    src: str = "src"  # source language, a code such as en
    tgt: str = "tgt"  # target language, a code such as fr
    document: Literal["line", "paragraph", "jsonl"] = "line"  # what a document of raw text is; jsonl: a "text" a line
    max_tokens: int = 256  # most tokens of a text with its end; longer pairs are left out and reported, documents cut
    max_length_ratio: float = 9.0  # pairs whose sides differ more, in characters with 20 added to each, are left out
    drop_duplicates: bool = True  # leave out a pair that stands in the data already
    drop_copies: bool = False  # leave out pairs whose two sides are equal
    valid_rows: int = 1000  # rows held out for validation when no --valid is given (at most a tenth)
    is_strict: bool = False  # stop at the first bad row instead of counting it
    encoding: str = "utf-8"  # character encoding of the input files
    batch_tokens: int | None = (
        None  # source + target tokens of one batch, padding included; unset: chosen from the data
    )
    sort_window: int = 8192  # pairs shuffled together and sorted by length inside
    across_documents: bool = False  # language model: packed documents see those before them in the row, as in GPT-2

    def __post_init__(self) -> None:
        _require_at_least(self, 1, "max_tokens", "batch_tokens", "sort_window", "valid_rows")
        _require(
            self.max_length_ratio >= 1,
            f"max_length_ratio={self.max_length_ratio} lies below 1.",
            "It is the longer side over the shorter one.",
            "Use 9, or inf for no limit.",
        )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The run: how long, which optimizer, which rate, what is saved."""

    seed: int = 1  # seed of initialisation, order and dropout
    init: Literal["auto", "random", "lexicon"] = "auto"  # lexicon: tables that know which pieces share pairs
    steps: int | None = None  # optimizer updates; unset: from epochs or the budget
    epochs: float | None = None  # passes over the data; unset: chosen from the size of the data
    budget_s: float | None = None  # seconds of wall-clock for the whole command
    accumulation: int = 1  # batches added up for one update
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: momentum orthogonalised, for the matrices inside the blocks
    lr: float | None = None  # peak learning rate; unset: chosen from the width of the model
    muon_lr: float = 0.01  # peak rate of the matrices that muon moves
    beta1: float = 0.9  # decay of the first moment
    beta2: float = 0.98  # decay of the second moment
    adam_eps: float = 1e-9  # epsilon of Adam
    weight_decay: float = 0.01  # decoupled; on matrices and tables only, never on norms and biases
    max_grad_norm: float = 1.0  # gradients longer than this are shortened to it; 0: off
    schedule: Literal["inverse_sqrt", "cosine", "wsd", "constant"] = "wsd"  # wsd: warm-up, stable, linear decay to zero
    warmup_steps: int | None = None  # updates until the peak rate; unset: a 20th of the run, at most 4000
    stable_share: float = 0.2  # wsd: share of the run at the peak rate before the decay
    min_lr_share: float = 0.0  # rate at the end of cosine and wsd as a share of the peak
    label_smoothing: float = 0.1  # probability mass spread over the whole vocabulary
    normalization: Literal["tokens", "sentences"] = "tokens"  # mean of the loss over tokens, or over sentences
    precision: Literal["auto", "float32", "bf16"] = "auto"  # auto: bf16 autocast where a measurement says that it gains
    ema_decay: float = 0.0  # decay of an exponential moving average of the weights; 0: off
    average_last: int = 0  # average the last k periodic checkpoints into the final model; 0: off
    save_every: int | None = None  # updates between periodic checkpoints; unset: every validation
    save_every_s: float = 300.0  # seconds after which a checkpoint is written in any case; inf: never
    keep_last: int = 2  # periodic checkpoints kept beside the best one
    max_skipped: int = 10  # non-finite updates in a row that stop the run
    log_every: int = 20  # updates between lines of log.jsonl
    n_threads: int | None = None  # threads of the matrix products; unset: torch's choice
    compile: bool = False  # run the blocks through torch.compile
    use_tensorboard: bool = False  # also write TensorBoard events (extra: tensorboard)
    fsdp: bool = False  # several processes: shard weights and optimizer (FSDP2) instead of copying them (DDP)
    frozen: Literal["none", "embeddings", "encoder", "body"] = (
        "none"  # fine-tuning: what keeps the start's weights, where dropout stays on; body: all but heads and output
    )
    lora_rank: int = 0  # r: with a start, train only W + (alpha/r) B A of this rank, and fresh heads; 0: off
    lora_alpha: float = 16.0  # strength of the adapters; alpha / r multiplies them
    lora_targets: Literal["attention", "all"] = "attention"  # which linear maps of the blocks get adapters

    def __post_init__(self) -> None:
        _require_at_least(
            self, 1, "steps", "accumulation", "keep_last", "max_skipped", "log_every", "n_threads", "save_every"
        )
        _require_at_least(self, 0, "warmup_steps", "average_last", "lora_rank")
        _require_share(self, "beta1", "beta2", "label_smoothing", "ema_decay")
        for name in ("lr", "muon_lr", "epochs", "budget_s", "save_every_s", "lora_alpha"):
            value = getattr(self, name)
            is_right = value is None or 0 < value < math.inf or (name == "save_every_s" and value == math.inf)
            _require(
                is_right,
                f"{name}={value} is out of range.",
                "A positive, finite number was expected.",
                f"Change {name}.",
            )
        for name in ("weight_decay", "max_grad_norm", "adam_eps"):
            value = getattr(self, name)
            _require(
                0 <= value < math.inf,
                f"{name}={value} is out of range.",
                "Zero or a positive, finite number was expected.",
                f"Use {name}=0 to switch it off.",
            )
        for name in ("stable_share", "min_lr_share"):
            value = getattr(self, name)
            _require(
                0 <= value <= 1, f"{name}={value} is not a share.", "It must lie in [0, 1].", f"Set {name}=0.2, say."
            )
        for is_right, other, reason in (
            (self.frozen == "none", f"frozen={self.frozen}", "Adapters freeze all of the start already."),
            (self.optimizer != "muon", "optimizer=muon", "Muon makes whole matrices orthogonal, not thin factors."),
        ):
            _require(
                self.lora_rank == 0 or is_right,
                f"lora_rank={self.lora_rank} with {other}.",
                reason,
                f"Leave out {other.partition('=')[0]}, or use lora_rank=0.",
            )
        given = [name for name in ("steps", "epochs", "budget_s") if getattr(self, name) is not None]
        _require(
            len(given) < 2, f"{' and '.join(given)} are both set.", "One of them says when the run ends.", "Keep one."
        )


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """How the model is measured while it trains."""

    every: int | None = None  # updates between validations; unset: about ten a run
    rows: int = 1000  # rows of the validation data used while training (all are used at the end)
    bleu_rows: int = 200  # rows translated for BLEU and chrF while training; 0: loss only
    patience: int = 0  # validations without a better loss after which the run ends; 0: never
    metric: Metric = "loss"  # which figure chooses the best checkpoint
    samples: int = 3  # translations shown at each validation
    film: str = ""  # sentence recorded before training and at each validation, for `glassformer film`; empty: none

    def __post_init__(self) -> None:
        _require_at_least(self, 1, "every", "rows")
        _require_at_least(self, 0, "bleu_rows", "patience", "samples")
        _require(
            self.metric not in ("bleu", "chrf") or self.bleu_rows > 0,
            f"metric={self.metric} with bleu_rows=0.",
            "This figure comes from translated rows.",
            "Raise bleu_rows, or use metric=loss.",
        )


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How text is made from a model. Kept in generation.json beside the weights."""

    beam_size: int = 4  # hypotheses kept at each step; 1: greedy
    n_best: int = 1  # hypotheses returned for each text
    length_penalty: Literal["gnmt", "average", "none"] = "gnmt"  # what divides the summed log-probability
    alpha: float = 0.6  # strength of the length penalty; larger prefers longer outputs
    do_sample: bool = False  # draw tokens instead of searching
    temperature: float = 1.0  # divides the logits before sampling; 0: the best token
    top_k: int = 0  # sample among the k best tokens; 0: off
    top_p: float = 1.0  # sample among the fewest tokens that hold this mass; 1: off
    min_p: float = 0.0  # sample among tokens with at least this share of the best one's probability; 0: off
    seed: int = 0  # seed of sampling; each text draws from its own stream
    repetition_penalty: float = 1.0  # divides (or multiplies, when negative) the logits of tokens already made; 1: off
    no_repeat_ngram_size: int = 0  # no n-gram of this many tokens is made twice; 0: off
    min_new_tokens: int = 0  # tokens before an end is allowed
    max_new_tokens: int | None = None  # most tokens made; unset: max_length_a * source + max_length_b
    max_length_a: float = 2.0  # tokens allowed for each source token
    max_length_b: int = 20  # tokens allowed beside those
    forced_bos_id: int | None = None  # id that every output begins with (BART); unset: the model chooses
    is_eos_forced: bool = False  # the last token that the limit allows is the end token

    def __post_init__(self) -> None:
        _require_at_least(self, 1, "beam_size", "n_best")
        _require_at_least(self, 0, "top_k", "no_repeat_ngram_size", "min_new_tokens", "max_new_tokens", "max_length_b")
        _require_at_least(self, 0, "forced_bos_id")
        for name, low, high in (
            ("beam_size", 1, MAX_HYPOTHESES),
            ("n_best", 1, MAX_HYPOTHESES),
            ("temperature", 0, 1e4),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("repetition_penalty", 1e-4, 1e4),
            ("max_length_a", 0, 1e4),
        ):
            value = getattr(self, name)
            _require(
                low <= value <= high,
                f"{name}={value} is out of range.",
                f"[{low}, {high}] was expected.",
                f"Set {name} inside.",
            )
        is_right = abs(self.alpha) <= 10  # beyond, powers of long outputs overflow
        _require(is_right, f"alpha={self.alpha} is out of range.", "[-10, 10] was expected.", "Use 0.6.")
        _require(
            self.do_sample or self.n_best <= self.beam_size,
            f"n_best={self.n_best} with beam_size={self.beam_size}.",
            "A beam returns at most as many hypotheses as it keeps.",
            "Raise beam_size or lower n_best.",
        )
        _require(
            self.max_new_tokens is None or self.min_new_tokens <= self.max_new_tokens,
            f"min_new_tokens={self.min_new_tokens} is more than max_new_tokens={self.max_new_tokens}.",
            "The least cannot be more than the most.",
            "Lower min_new_tokens.",
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """How outputs are scored against references."""

    tokenize: Literal["13a", "intl", "zh", "char", "none"] = (
        "13a"  # words of BLEU; zh or char where none are written apart
    )
    n_resamples: int = 1000  # bootstrap resamples behind each 95 % interval; 0: no intervals
    n_trials: int = 10000  # random exchanges of the paired test
    seed: int = 12345  # seed of the resamples and exchanges
    length_bounds: tuple[int, ...] = (5, 10, 20, 30, 50)  # most source words of each length group; one more follows
    small_group: int = 100  # groups of fewer sentences are flagged
    max_domains: int = 40  # domains listed apart, the largest first; the rest is one group
    n_worst: int = 10  # worst sentences shown

    def __post_init__(self) -> None:
        _require_at_least(self, 1, "n_trials", "max_domains")
        _require_at_least(self, 0, "n_resamples", "seed", "small_group", "n_worst")
        _require(
            list(self.length_bounds) == sorted(set(self.length_bounds)),
            f"length_bounds={self.length_bounds} does not rise.",
            "Each group begins where the one before ends.",
            "Use (5, 10, 20), say.",
        )


@dataclass(frozen=True, kw_only=True)
class PhrasebookConfig:
    """The embedded English-French phrasebook."""

    pairs: int = 60_000  # training pairs
    valid_rows: int = 1000  # pairs of held-out combinations for validation
    test_rows: int = 2000  # pairs of held-out combinations for the test
    seed: int = 1  # seed of the sentences and of what is held out


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """`glassformer serve`: where it listens and what it bears. Each field is a flag and GLASSFORMER_<NAME>."""

    host: str = "127.0.0.1"  # address to listen on; 0.0.0.0: every network, with keys or behind a proxy
    port: int = 5000  # port to listen on; 0: a free one
    hosts: tuple[str, ...] = ()  # Host names of this server; unset: this machine's own on 127.0.0.1, else any
    cors: tuple[str, ...] = ()  # web origins whose pages may read answers, such as https://example.org; *: all
    keys: str | None = None  # file with one API key a line; unset: no key is asked for
    rate: int = 0  # requests a minute of one key, or of one address without a right one; 0: no limit
    max_body_bytes: int = 1_048_576  # bytes of a request's body
    max_file_bytes: int = 10_485_760  # bytes of a document for /translate_file; 0: none is taken
    max_chars: int = 50_000  # characters of all texts of a request, or of a document
    max_items: int = 128  # texts of a request
    max_alternatives: int = 10  # alternatives of a text; also n and the beam
    max_tokens: int = 32_768  # texts x n x tokens that a request may ask for
    max_waiting: int = 2048  # sequences that wait for one model; more are sent away with 503
    max_connections: int = 1000  # connections at one time
    timeout_s: float = 120.0  # seconds for the answer to a request
    read_timeout_s: float = 10.0  # seconds for a client to send its headers, and again for its body
    drain_s: float = 30.0  # seconds for requests to end after SIGTERM
    batch_tokens: int = 16_384  # tokens times hypotheses decoded together
    batch_wait_s: float = 0.002  # seconds that an idle model waits for company of a first request
    precision: Literal["float32", "bf16", "int8"] = "float32"  # what models compute in; int8: faster, on x86 CPUs
    threads: int | None = None  # threads of the matrix products of each model; unset: torch's choice, shared out
    explain_log: str | None = None  # folder that keeps the text of requests with X-Explain: 1 for `explain --request`
    workers: int = 0  # processes that share the port, each with the models, begun anew when killed; 0: this one alone

    def __post_init__(self) -> None:
        _require(0 <= self.port < 65536, f"port={self.port} is no port.", "0 to 65535 was expected.", "Use 5000, say.")
        counts = ("max_body_bytes", "max_chars", "max_items", "max_tokens", "max_waiting", "max_connections")
        _require_at_least(self, 1, *counts, "batch_tokens", "threads")
        _require_at_least(self, 0, "rate", "max_file_bytes", "max_alternatives", "workers")
        for name in ("timeout_s", "read_timeout_s", "drain_s", "batch_wait_s"):
            value = getattr(self, name)
            is_right = 0 <= value < math.inf and (value > 0 or name == "batch_wait_s")
            _require(is_right, f"{name}={value} is out of range.", "Finite seconds were expected.", f"Change {name}.")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All sections of a run. `--set section.key=value` sets one of them."""

    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)

    def __post_init__(self) -> None:
        given = {"training.frozen": self.training.frozen != "none", "training.lora_rank": self.training.lora_rank > 0}
        for name in [name for name, is_given in given.items() if is_given and self.task.start is None]:
            raise ConfigError(
                f"{name} is set without task.start.",
                "Frozen weights are those of a trained model.",
                f"Name one with --from FOLDER, or leave out {name}.",
            )
