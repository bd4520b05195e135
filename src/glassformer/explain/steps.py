"""The rows of the walk: each step of the forward pass with its equation, shape, numbers, cost and proof."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.explain.result import Row
from glassformer.explain.sublayers import add_attention, add_feed_forward, add_norm
from glassformer.explain.table import Table
from glassformer.explain.trace import Trace

__all__ = ["build_rows"]


def build_rows(
    config: ModelConfig,
    names: Mapping[str, str],
    *,
    src: Tensor | None,
    tgt: Tensor | None,
    equation: Trace,
    served: Trace,
) -> list[Row]:
    """Lists every step of one run.

    Names, equations and shapes come from `shapes.walk`; what that table has as one step and the lessons as several
    (scores, norms, the feed-forward network) is taken apart here.

    Args:
        config: The architecture.
        names: See `names_of`.
        src: int64 [B, S], ids of the encoder; None without one.
        tgt: int64 [B, T], ids of the decoder; None without one.
        equation: Tensors of the float64 run.
        served: Tensors of the run that served; what is missing has no proof.
    """
    some = src if src is not None else tgt
    assert some is not None
    n_src, n_tgt = (ids.shape[1] if ids is not None else 1 for ids in (src, tgt))
    table = Table(config, (len(some), n_src, n_tgt), equation, served, names)
    if src is not None:
        _add_stack(table, "encoder", src, config.n_encoder_layers)
    if tgt is not None:
        _add_stack(table, "decoder", tgt, config.n_decoder_layers)
    _add_heads(table)
    return table.rows


def _add_stack(table: Table, side: str, ids: Tensor, n_layers: int) -> None:
    table.length = "S" if side == "encoder" else "T"
    _add_input(table, side, ids)
    walked = f"{side} x {n_layers}: "
    for layer in range(n_layers):
        block = f"{side}.stack.blocks.{layer}"
        for kind, title in (("self", "self-attention"), ("cross", "cross-attention"), ("ffn", "feed-forward")):
            if f"{block}.{kind}_residual.norm" in table.equation.out:
                table.group, table.prefix = f"{side} layer {layer + 1}: {title}", f"{side}.{layer + 1}.{kind}"
                _add_sublayer(table, block, kind, f"{walked}{title} ")
    is_memory = side == "encoder" and table.config.family == "encoder-decoder"
    name = "memory" if is_memory else "features"
    table.group, table.prefix = f"{side}: {name}", side
    if f"{side}.stack.norm" in table.equation.out:
        table.stream = add_norm(table, f"{side}.stack.norm", name)
    else:
        table.stream = table.out(name, f"{side}.stack", walked=name, source="residual", inputs=(table.stream,))


def _add_input(table: Table, side: str, ids: Tensor) -> None:
    config, base = table.config, f"{side}.embedding"
    label = {"encoder": "source ", "decoder": "target "}[side] if config.family == "encoder-decoder" else ""
    table.group, table.prefix = f"{side} input", f"{side}.input"
    key = table.add("ids", ids, table.served.into.get(f"{base}.tokens"), walked=f"{label}ids", source="embeddings")
    keys = [
        table.out(
            "embeddings",
            f"{base}.tokens",
            walked=f"{label}embeddings",
            source="embeddings",
            inputs=(key,),
            weights=(f"{base}.tokens.weight",),
        )
    ]
    if f"{base}.positions" in table.equation.out:
        weights = (f"{base}.positions.weight",)
        walked = f"{label}positions"
        keys.append(table.out("positions", f"{base}.positions", walked=walked, source="positions", weights=weights))
    norm = (f"{base}.norm.gamma", f"{base}.norm.beta") if config.use_embedding_norm else ()
    table.stream = table.out(
        "input",
        base,
        walked=f"{label}input",
        source="positions",
        inputs=tuple(keys),
        weights=(f"{base}.segments", *norm),
    )


def _add_sublayer(table: Table, block: str, kind: str, walked: str) -> None:
    """x + f(norm(x)), or norm(x + f(x))."""
    norm, before = f"{block}.{kind}_residual.norm", table.stream
    is_pre = table.config.norm_placement == "pre"
    x = add_norm(table, norm, "norm") if is_pre else before
    if kind == "ffn":
        out = add_feed_forward(table, f"{block}.feed_forward", x)
    else:
        out = add_attention(table, f"{block}.{kind}_attention", walked, x)
    letters = f"[B, {table.length}, D]"
    add, module = (table.out, f"{block}.{kind}_residual") if is_pre else (table.into, norm)
    added = {"self": "attention(x)", "cross": "attention(x, memory)", "ffn": "FFN(x)"}[kind]
    formula = "x + " + (added.replace("(x", "(norm(x)") if is_pre else added)
    table.stream = add("add", module, equation=formula, letters=letters, source="residual", inputs=(before, out))
    if not is_pre:
        table.stream = add_norm(table, norm, "add & norm")


def _add_heads(table: Table) -> None:
    """What stands on top: the vote for each word and its probabilities; or BERT's heads."""
    config, module = table.config, "decoder.projection"
    table.group, table.prefix = "output", "output"
    features = table.stream
    if "mlm_head.projection" in table.equation.out:
        module = "mlm_head.projection"
        dense, norm = "mlm_head.dense", "mlm_head.norm"
        table.stream = table.into(
            "head",
            module,
            walked="masked-LM head",
            source="head",
            inner=config.d_model,
            inputs=(features,),
            weights=(f"{dense}.weight", f"{dense}.bias", f"{norm}.gamma", f"{norm}.beta"),
        )
    if module in table.equation.out:
        about = {"walked": "logits", "source": "output", "inner": config.d_model, "inputs": (table.stream,)}
        key = table.out("logits", module, weights=(f"{module}.weight", f"{module}.bias"), **about)
        note = "the search reads log-probabilities of its candidates, which it makes from the logits above"
        probabilities = table.equation.out[module].softmax(-1)
        walked = "probabilities"
        table.add(walked, probabilities, None, walked=walked, source="output", inputs=(key,), note=note)
    if "pooler" in table.equation.out:
        weights = ("pooler.dense.weight", "pooler.dense.bias")
        about = {"walked": "pooler", "source": "head", "inner": config.d_model, "inputs": (features,)}
        features = table.out("pooler", "pooler", weights=weights, **about)
    if "label_head" in table.equation.out:
        names = tuple(name for name in table.names if name.startswith("label_head."))
        key = table.out(
            "label votes",
            "label_head",
            equation="x W + b" if config.head == "label" or config.use_pooler else f"pooled x W + b ({config.pooling})",
            letters="[B, S, L]" if config.head == "label" else "[B, L]",
            source="head",
            inner=config.d_model,
            inputs=(features,),
            weights=names,
        )
        table.add(
            "label probabilities",
            table.equation.out["label_head"].softmax(-1),
            None,
            equation="softmax(votes) over the labels",
            letters=table.rows[-1].symbolic,
            source="head",
            inputs=(key,),
            note="the classifier makes them from the votes above",
        )
