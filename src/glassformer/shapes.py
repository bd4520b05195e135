"""Sizes by arithmetic alone: parameters, FLOPs, memory, and the shape of every step. No tensor is made.

Letters: B batch, S source length, T target length, D d_model, H heads, G key-value heads, K d_head, F d_ff,
V vocabulary. An encoder-only model reads S tokens, a decoder-only model T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.config import ModelConfig
from glassformer.errors import LengthError

__all__ = ["Flops", "Step", "cache_bytes", "flops_per_token", "parameters", "total", "training_bytes", "walk"]


def parameters(config: ModelConfig) -> dict[str, int]:
    """Counts the learned numbers of each part, in the order in which a token meets them.

    A matrix that serves twice is counted where it stands first and listed with 0 where it serves again.
    Per part: an attention has D·HK + 2·D·GK + HK·D (and HK + 2·GK + D with biases), a feed-forward network 2·D·F
    (3·D·F when gated) and its biases, a LayerNorm 2·D (D without beta), an RMSNorm D.
    """
    has_encoder, has_decoder = config.family != "decoder-only", config.family != "encoder-only"
    counts = _tables(config, has_encoder + has_decoder)
    if has_encoder:
        n = config.n_encoder_layers
        counts["encoder self-attention"] = n * _attention(config) + _relative_bias(config)
        counts["encoder feed-forward"] = n * _feed_forward(config)
        counts["encoder norms"] = n * 2 * _norm(config)
        if config.use_final_norm:
            counts["encoder final norm"] = _norm(config)
    if has_decoder:
        n = config.n_decoder_layers
        counts["decoder self-attention"] = n * _attention(config) + _relative_bias(config)
        if has_encoder:
            counts["decoder cross-attention"] = n * _attention(config)
        counts["decoder feed-forward"] = n * _feed_forward(config)
        counts["decoder norms"] = n * (2 + has_encoder) * _norm(config)
        if config.use_final_norm:
            counts["decoder final norm"] = _norm(config)
    return counts | _heads(config)


def total(config: ModelConfig) -> int:
    """Number of parameters; what is tied counts once."""
    return sum(parameters(config).values())


def _tables(config: ModelConfig, n_stacks: int) -> dict[str, int]:
    width, target = config.d_model, config.vocab_size * config.d_model
    if config.family != "encoder-decoder":
        counts = {"token table": target}
    elif config.is_source_tied:
        counts = {"token table of source and target": target}
    else:
        counts = {"source token table": config.source_vocab_size * width, "target token table": target}
    if config.positions == "learned":
        counts["position tables" if n_stacks == 2 else "position table"] = (
            n_stacks * ((config.max_positions or 0) + config.position_offset) * width
        )
    if config.n_segments and config.family != "decoder-only":
        counts["segment table"] = config.n_segments * width
    if config.use_embedding_norm:
        counts["embedding norm"] = n_stacks * _norm(config)
    return counts


def _heads(config: ModelConfig) -> dict[str, int]:
    width, vocabulary = config.d_model, config.vocab_size
    table = {"output projection (is the token table)": 0}
    if not config.is_output_tied:
        table = {"output projection": vocabulary * width}
    if config.family != "encoder-only":
        return table | ({"output bias": vocabulary} if config.use_output_bias else {})
    counts = {"pooler": width * width + width} if config.use_pooler else {}
    if config.use_mlm_head:
        counts["masked-LM head: dense and norm"] = width * width + width + _norm(config)
        counts |= table | {"output bias": vocabulary}
    if config.head != "none":
        counts[f"votes for {config.n_labels} labels"] = (width + 1) * config.n_labels
    return counts


def _attention(config: ModelConfig) -> int:
    queries, keys = config.n_heads * config.head_width, config.kv_heads * config.head_width
    biases = queries + 2 * keys + config.d_model if config.use_attention_bias else 0
    return 2 * config.d_model * (queries + keys) + biases


def _relative_bias(config: ModelConfig) -> int:
    return config.n_relative_buckets * config.n_heads if config.positions == "t5_relative" else 0


def _feed_forward(config: ModelConfig) -> int:
    n_inner = 2 if config.is_gated else 1
    biases = n_inner * config.d_ff + config.d_model if config.use_ffn_bias else 0
    return (n_inner + 1) * config.d_model * config.d_ff + biases


def _norm(config: ModelConfig) -> int:
    return config.d_model * (2 if config.norm == "layernorm" and config.use_norm_bias else 1)


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Floating-point operations for one token."""

    forward: float
    training: float


def flops_per_token(config: ModelConfig, src_length: int, tgt_length: int) -> Flops:
    """Counts the matrix products for one text (or pair), divided by its tokens, source and target together.

    A multiply-add is two operations. Attention is included, over the full T x T square also where a causal mask hides
    half of it, since it is computed. Not counted: norms, softmax, activations, biases, table look-ups; they cost time
    by memory traffic, not by arithmetic. Training is three times the forward pass: the backward pass has one product
    for the inputs and one for the weights.
    """
    projection = 2 * config.d_model * config.head_width  # operations of one token and one head, each way
    queries, keys = 2 * config.n_heads * projection, 2 * config.kv_heads * projection
    square = 4 * config.n_heads * config.head_width  # scores and context: each pair of query and key
    feed_forward = 2 * (3 if config.is_gated else 2) * config.d_model * config.d_ff
    logits = 2 * config.d_model * config.vocab_size
    s = src_length if config.family != "decoder-only" else 0
    t = tgt_length if config.family != "encoder-only" else 0
    operations = config.n_encoder_layers * s * (queries + keys + feed_forward + square * s)
    operations += config.n_decoder_layers * t * (queries + keys + feed_forward + square * t) + t * logits
    if config.family == "encoder-decoder":
        operations += config.n_decoder_layers * (t * queries + s * keys + square * t * s)
    if config.use_mlm_head and config.family == "encoder-only":
        operations += s * (2 * config.d_model**2 + logits)
    if config.use_pooler and config.family == "encoder-only":
        operations += 2 * config.d_model**2
    return Flops(forward=operations / (s + t), training=3 * operations / (s + t))


def cache_bytes(config: ModelConfig, batch: int, length: int, src_length: int, bytes_per_value: int = 4) -> int:
    """Memory of the key-value cache: 2·N·B·G·K·(length + src_length) values; 0 for an encoder-only model.

    Args:
        config: The architecture.
        batch: B, rows decoded together; with a beam, batch · beam_size.
        length: Target positions the cache has room for.
        src_length: S, for the keys and values of cross-attention; unused without an encoder.
        bytes_per_value: 4 for float32, 2 for bf16.
    """
    if config.family == "encoder-only":
        return 0
    positions = length + (src_length if config.family == "encoder-decoder" else 0)
    return 2 * config.n_decoder_layers * batch * config.kv_heads * config.head_width * positions * bytes_per_value


def training_bytes(config: ModelConfig, batch: int, src_length: int, tgt_length: int) -> dict[str, int]:
    """Memory of one training step in float32: weights, gradients, Adam's two moments, and an estimate of activations.

    The first three are exact (4, 4 and 8 bytes a parameter). Activations are what the backward pass needs: the inputs
    of each product, norm, dropout and activation, the attention weights, and logits with their log-probabilities. They
    are an estimate, since kernels differ in what they keep: within a tenth of what autograd keeps for short texts on a
    CPU (tested); a fused kernel keeps no attention weights.
    """
    n = total(config)
    s = src_length if config.family != "decoder-only" else 0
    t = tgt_length if config.family != "encoder-only" else 0
    width, heads, keys = config.d_model, config.n_heads * config.head_width, config.kv_heads * config.head_width
    n_maps = 4 if config.attention_dropout else 2  # softmax, the same masked; noise of dropout and its result
    n_inner = (1 if config.activation == "relu" else 2) + 2 * config.is_gated + 2 * (config.ffn_dropout > 0)
    feed_forward = 3 * width + n_inner * config.d_ff  # 3: into the norm, out of it, noise of dropout

    def attention(n_queries: int, n_keys: int) -> float:
        maps = n_maps * config.n_heads * n_queries * n_keys
        return n_queries * (3 * width + 2 * heads) + n_keys * 2 * keys + maps

    values = config.n_encoder_layers * (attention(s, s) + s * feed_forward)
    values += config.n_decoder_layers * (attention(t, t) + t * feed_forward)
    if config.family == "encoder-decoder":
        values += config.n_decoder_layers * attention(t, s)
    n_logits = s * config.use_mlm_head if config.family == "encoder-only" else t
    values += n_logits * (2 * config.vocab_size + width) + 2 * (s + t) * width
    return {
        "weights": 4 * n,
        "gradients": 4 * n,
        "Adam moments": 8 * n,
        "activations (estimate)": int(4 * batch * values),
    }


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the forward pass."""

    name: str
    symbolic: str  # such as [B, H, T, S]
    shape: tuple[int, ...]
    equation: str


def walk(config: ModelConfig, batch: int, src_length: int, tgt_length: int) -> list[Step]:
    """Lists the steps of the forward pass with their shapes, each kind of block once.

    Raises:
        LengthError: If a text is longer than max_positions.

    Source: Vaswani et al. 2017, figures 1 and 2.
    """
    used = {"encoder-only": [src_length], "decoder-only": [tgt_length]}.get(config.family, [src_length, tgt_length])
    if config.max_positions is not None and max(used) > config.max_positions:
        raise LengthError(
            f"A length of {max(used)} is more than max_positions={config.max_positions}.",
            "Every token needs a position.",
            "Choose a shorter length.",
        )
    steps = _Walk(config, batch, src_length, tgt_length)
    if config.family != "decoder-only":
        steps.embed("source" if config.family == "encoder-decoder" else "", "S")
        steps.block(f"encoder x {config.n_encoder_layers}: ", "S", is_causal=False, has_cross_attention=False)
        result = "memory" if config.family == "encoder-decoder" else "features"
        steps.add(result, "B S D", steps.final)
    if config.family != "encoder-only":
        has_cross = config.family == "encoder-decoder"
        steps.embed("target" if has_cross else "", "T")
        steps.block(f"decoder x {config.n_decoder_layers}: ", "T", is_causal=True, has_cross_attention=has_cross)
        steps.add("features", "B T D", steps.final)
        steps.project("T", "x", has_bias=config.use_output_bias)
    elif config.use_mlm_head:
        steps.add("masked-LM head", "B S D", f"y = norm({config.activation}(x W + b))")
        steps.project("S", "y", has_bias=True)
    if config.use_pooler and config.family == "encoder-only":
        steps.add("pooler", "B D", "tanh(x_0 W + b)")
    return steps.steps


class _Walk:
    """Collects steps; sizes come from the letters."""

    def __init__(self, config: ModelConfig, batch: int, src_length: int, tgt_length: int) -> None:
        self.config, self.steps = config, list[Step]()
        self.sizes = {"1": 1, "B": batch, "S": src_length, "T": tgt_length, "D": config.d_model, "F": config.d_ff}
        self.sizes |= {"H": config.n_heads, "G": config.kv_heads, "K": config.head_width, "V": config.vocab_size}
        self.sizes["HK"] = config.n_heads * config.head_width
        self.final = "norm(x)" if config.use_final_norm else "x"

    def add(self, name: str, letters: str, equation: str) -> None:
        shape = tuple(self.sizes[letter] for letter in letters.split())
        symbolic = f"[{', '.join(letters.split())}]"
        self.steps.append(Step(name=name.strip(), symbolic=symbolic, shape=shape, equation=equation))

    def embed(self, side: str, length: str) -> None:
        config = self.config
        factor = " · sqrt(D)" if config.scale_embedding else ""
        self.add(f"{side} ids", f"B {length}", "one integer per token")
        self.add(f"{side} embeddings", f"B {length} D", f"E[ids]{factor}")
        terms = ["embeddings"]
        if config.positions in ("sinusoidal", "learned"):
            pair = "sin, cos of pos / 10000^(2i/D)" if config.positions == "sinusoidal" else "P[pos], learned"
            self.add(f"{side} positions", f"1 {length} D", pair)
            terms.append("positions")
        if config.n_segments and length == "S":
            self.add(f"{side} segments", f"B {length} D", "segment table[segment ids]")
            terms.append("segments")
        summed = " + ".join(terms)
        self.add(f"{side} input", f"B {length} D", f"norm({summed})" if config.use_embedding_norm else summed)

    def block(self, prefix: str, length: str, *, is_causal: bool, has_cross_attention: bool) -> None:
        self.attention(f"{prefix}self-attention ", length, length, is_causal=is_causal)
        if has_cross_attention:
            self.attention(f"{prefix}cross-attention ", length, "S", is_cross=True)
        g, gate = self.config.activation, " * (x W_3)" if self.config.is_gated else ""
        self.add(f"{prefix}feed-forward inner", f"B {length} F", f"{g}(x W_1){gate}")
        self.add(f"{prefix}feed-forward output", f"B {length} D", "inner W_2")
        self.add(f"{prefix}feed-forward add & norm", f"B {length} D", self._residual("FFN"))

    def attention(
        self, prefix: str, queries: str, keys: str, *, is_causal: bool = False, is_cross: bool = False
    ) -> None:
        source, kind = ("memory" if is_cross else "x"), self.config.positions
        turn = "rotary: " if kind == "rotary" and not is_cross else ""
        self.add(f"{prefix}Q", f"B H {queries} K", f"{turn}x W_Q, split into heads")
        self.add(f"{prefix}K", f"B G {keys} K", f"{turn}{source} W_K")
        self.add(f"{prefix}V", f"B G {keys} K", f"{source} W_V")
        bias = " + bias of the distance" if kind in ("t5_relative", "alibi") and not is_cross else ""
        scale = " / sqrt(K)" if self.config.scale_scores else ""
        mask = ", minus infinity after the query" if is_causal else ""
        self.add(f"{prefix}scores", f"B H {queries} {keys}", f"Q K^T{scale}{bias}{mask}")
        self.add(f"{prefix}weights", f"B H {queries} {keys}", "softmax(scores) over the keys")
        self.add(f"{prefix}context", f"B H {queries} K", "weights V")
        self.add(f"{prefix}concatenation", f"B {queries} HK", "heads side by side")
        self.add(f"{prefix}output", f"B {queries} D", "concatenation W_O")
        self.add(f"{prefix}add & norm", f"B {queries} D", self._residual("attention"))

    def project(self, length: str, name: str, *, has_bias: bool) -> None:
        scale = " · D^-0.5" if self.config.scale_logits and self.config.family != "encoder-only" else ""
        bias = " + b" if has_bias else ""
        self.add("logits", f"B {length} V", f"{name}{scale} W_vocab{bias}")
        self.add("probabilities", f"B {length} V", "softmax(logits) over the vocabulary")

    def _residual(self, name: str) -> str:
        return f"x + {name}(norm(x))" if self.config.norm_placement == "pre" else f"norm(x + {name}(x))"
