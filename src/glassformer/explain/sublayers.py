"""Rows of what a block is made of: norm, attention, feed-forward network."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.explain.table import Table

__all__ = ["add_attention", "add_feed_forward", "add_norm"]

INSIDE = "inside the fused kernel, which has no such tensor; the context after it carries the proof"
INSIDE_NORM = "inside the norm's kernel, which has no such tensor; the norm after it carries the proof"
NO_MASK = "the served path needed no mask here: its cache held the earlier tokens only"


def add_norm(table: Table, module: str, name: str) -> str:
    """Mean and variance, then the norm."""
    config, x, source = table.config, table.equation.into[module], table.stream
    is_layer_norm = config.norm == "layernorm"
    about: dict[str, Any] = {"letters": f"[B, {table.length}, 1]", "source": config.norm, "note": INSIDE_NORM}
    mean = x.mean(-1, keepdim=True)
    if is_layer_norm:
        centred = x - mean
        keys = [table.add("mean", mean, None, equation="mean of the D features", inputs=(source,), **about)]
        spread = (centred**2).mean(-1, keepdim=True)
        inputs = (source, keys[0])
        keys.append(table.add("variance", spread, None, equation="mean of (x - mean)^2", inputs=inputs, **about))
    else:
        centred, spread = x, (x**2).mean(-1, keepdim=True)
        keys = [table.add("mean square", spread, None, equation="mean of x^2", inputs=(source,), **about)]
    unit = centred / torch.sqrt(spread + config.norm_eps)
    beta = " + beta" if is_layer_norm and config.use_norm_bias else ""
    top, under = ("x - mean", "variance") if is_layer_norm else ("x", "mean square")
    return table.out(
        name,
        module,
        equation=f"({top}) / sqrt({under} + eps) · gamma{beta}",
        letters=f"[B, {table.length}, D]",
        source=config.norm,
        inputs=(source, *keys),
        weights=(f"{module}.gamma", f"{module}.beta"),
        facts={
            "mean before": float(mean.abs().mean()),
            "variance before": float(x.var(-1, unbiased=False).mean()),
            "mean after": float(unit.mean(-1).abs().mean()),
            "variance after": float(unit.var(-1, unbiased=False).mean()),
        },
    )


def add_attention(table: Table, module: str, walked: str, x: str) -> str:
    """Q, K, V, what the kernel does with them, and the way back to the stream."""
    config = table.config
    is_cross = module.endswith("cross_attention")
    keys = _projections(table, module, walked, x, "encoder.memory" if is_cross else x)
    call, served = table.equation.kernels[module], table.served.kernels.get(module)
    if config.positions == "rotary" and not is_cross:
        for name in ("Q", "K"):
            turned, got = (getattr(kept, name.lower(), None) for kept in (call, served))
            assert turned is not None
            keys[name] = table.add(
                f"{name} turned", turned, got, walked=walked + name, source="rotary", inputs=(keys[name],)
            )
    weights = _kernel(table, module, walked, keys)
    context = table.add(
        "context",
        call.context,
        None if served is None else served.context,
        walked=walked + "context",
        source="kernel",
        inner=table.rows[-1].shape[-1],
        inputs=(weights, keys["V"]),
    )
    out = f"{module}.w_o"
    joined = table.into("concatenation", out, walked=walked + "concatenation", source="projection", inputs=(context,))
    return table.out(
        "output",
        out,
        walked=walked + "output",
        source="projection",
        inner=config.n_heads * config.head_width,
        inputs=(joined,),
        weights=(f"{out}.weight", f"{out}.bias"),
    )


def _projections(table: Table, module: str, walked: str, x: str, source: str) -> dict[str, str]:
    keys = {}
    for name, read in (("Q", x), ("K", source), ("V", source)):
        projection = f"{module}.w_{name.lower()}"
        got = table.served.out.get(projection)
        keys[name] = table.add(
            name,
            table.split(table.equation.out[projection]),
            None if got is None else table.split(got),
            walked=walked + name,
            equation=f"{'memory' if read == 'encoder.memory' else 'x'} W_{name}, split into heads",
            source="projection",
            inner=table.config.d_model,
            inputs=(read,),
            weights=(f"{projection}.weight", f"{projection}.bias"),
        )
    return keys


def _kernel(table: Table, module: str, walked: str, keys: dict[str, str]) -> str:
    """What happens inside the kernel, by the equation: scores, scale, bias, mask, softmax."""
    config, call, served = table.config, table.equation.kernels[module], table.served.kernels.get(module)
    k = table.split(table.equation.out[f"{module}.w_k"]) if module.endswith("cross_attention") else call.k
    scores = call.q @ k.repeat_interleave(call.q.shape[1] // k.shape[1], dim=1).transpose(-2, -1)
    about: dict[str, Any] = {"walked": walked + "scores", "note": INSIDE}
    key = table.add(
        "scores",
        scores,
        None,
        equation="Q K^T",
        source="kernel",
        inner=config.head_width,
        inputs=(keys["Q"], keys["K"]),
        facts={"deviation": float(scores.std(unbiased=False))},
        **about,
    )
    if config.scale_scores:
        scores = scores * call.scale
        facts = {"deviation": float(scores.std(unbiased=False))}
        formula = "scores / sqrt(K)"
        key = table.add("scaled", scores, None, equation=formula, source="kernel", inputs=(key,), facts=facts, **about)
    if call.bias is not None:
        bias = call.bias.to(scores.dtype).expand_as(scores)
        kind, formula = config.positions, "a number for each head and distance"
        term = table.add("bias", bias, None, equation=formula, source=kind, **about)
        scores = scores + bias
        key = table.add("biased", scores, None, equation="scores + bias", source=kind, inputs=(key, term), **about)
    if call.mask is not None:
        scores = scores.masked_fill(~call.mask, -torch.inf)
        facts = {"share hidden": float((~call.mask).double().mean())}
        formula = "minus infinity where the mask hides a key"
        about["note"] = NO_MASK if served is not None and served.mask is None else INSIDE
        key = table.add("masked", scores, None, equation=formula, source="mask", inputs=(key,), facts=facts, **about)
    weights = scores.softmax(-1).nan_to_num(0.0)  # a row without any key: 0/0
    return table.add("weights", weights, None, walked=walked + "weights", note=INSIDE, source="kernel", inputs=(key,))


def add_feed_forward(table: Table, module: str, x: str) -> str:
    """Expansion, activation, contraction."""
    config, inner = table.config, f"[B, {table.length}, F]"
    has_bias, keys = config.use_ffn_bias, []
    for name, number in (("expansion", 1), ("gate", 3)):
        projection = f"{module}.w_{number}"
        if projection in table.equation.out:
            keys.append(
                table.out(
                    name,
                    projection,
                    equation=f"x W_{number}" + (f" + b_{number}" if has_bias else ""),
                    letters=inner,
                    source="ffn",
                    inner=config.d_model,
                    inputs=(x,),
                    weights=(f"{projection}.weight", f"{projection}.bias"),
                )
            )
    contraction = f"{module}.w_2"
    active = table.equation.into[contraction]
    key = table.into(
        "activation",
        contraction,
        equation=f"{config.activation}(expansion)" + (" * gate" if config.is_gated else ""),
        letters=inner,
        source="ffn",
        inputs=tuple(keys),
        facts={"share of zeros": float((active == 0).double().mean())},
    )
    return table.out(
        "contraction",
        contraction,
        equation="activation W_2" + (" + b_2" if has_bias else ""),
        letters=f"[B, {table.length}, D]",
        source="ffn",
        inner=config.d_ff,
        inputs=(key,),
        weights=(f"{contraction}.weight", f"{contraction}.bias"),
    )
