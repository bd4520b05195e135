"""From a model and a text to the explanation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.config import GenerationConfig
from glassformer.errors import UserError
from glassformer.explain.beams import search_log_probs, search_view
from glassformer.explain.equation import Equation, evaluate
from glassformer.explain.lenses import lens_views
from glassformer.explain.masks import masks_view
from glassformer.explain.positions import positions_view
from glassformer.explain.relevance import attention_gradients, relevance_view
from glassformer.explain.result import Array, AttentionMap, Explanation, Row
from glassformer.explain.scaling import scaling_view
from glassformer.explain.served import Served, serve
from glassformer.explain.steps import build_rows
from glassformer.explain.table import names_of, to_array
from glassformer.explain.why_not import WhyNot, why_not
from glassformer.model import EncoderDecoder
from glassformer.tasks.model_folder import ModelFolder, load_model_folder

__all__ = ["TOLERANCE", "explain"]

TOLERANCE = 1e-5  # float32 rounds at 6e-8; a few hundred sums in a row stay well below this


def explain(
    model: str | Path | ModelFolder,
    text: str,
    *,
    target: str | None = None,
    reference: str | None = None,
    generation: GenerationConfig | None = None,
    with_views: bool = True,
) -> Explanation:
    """Runs a text through the path that serves, beside it the equations in float64, and compares every step.

    Args:
        model: A model folder, or its path.
        text: A sentence to translate, a prompt to go on with, or a text to read, by the model's family.
        target: A translation to follow in place of the search.
        reference: A translation to look for in the search: where the model leaves it, and why.
        generation: Search settings; unset: those saved with the model.
        with_views: Compute the views, which the page and the JSON need: half of the time. Without: rows and maps alone.

    Returns:
        Rows, attention maps and views; `to_html()`, `to_json()` and `to_numpy()` give them away.

    Raises:
        UserError: The text is blank or has several lines, or a target or reference does not suit.
        LengthError: The text is longer than the model takes.
    """
    folder = model if isinstance(model, ModelFolder) else load_model_folder(model)
    if reference is not None and (target is not None or not isinstance(folder.model, EncoderDecoder)):
        raise UserError(
            "A reference was given without a search of a translator.",
            "It is looked for in the search of an encoder-decoder.",
            "Leave out the target, or choose a translator.",
        )
    served = serve(folder, text, target=target, generation=generation)
    equation = Equation(folder.model)
    exact, weights, output = evaluate(equation, *served.inputs)
    rows = build_rows(
        folder.config.model,
        names_of(folder.model),
        src=served.src_ids,
        tgt=served.tgt_ids,
        equation=exact,
        served=served.trace,
    )
    maps = [_map(name, values, served) for name, values in weights.items()]
    views = {}
    if with_views:
        gradients = attention_gradients(weights, output, served)
        views = _views(folder, equation, served, text, rows, maps, gradients)
        if reference is not None:
            views["why_not"] = _why_not(folder, equation, served, text, reference)
    return Explanation(
        model=str(folder.path),
        config=folder.config.model,
        text=text,
        output=served.output,
        src=served.src,
        tgt=served.tgt,
        chosen=served.chosen,
        rows=rows,
        maps=maps,
        tolerance=TOLERANCE,
        views=views,
    )


def _views(
    folder: ModelFolder,
    equation: Equation,
    served: Served,
    text: str,
    rows: list[Row],
    maps: list[AttentionMap],
    gradients: Mapping[str, Array],
) -> dict[str, Any]:
    config, tokenizers = folder.config.model, {"encoder": folder.src_tokenizer, "decoder": folder.tokenizer}
    views: dict[str, Any] = {
        "relevance": relevance_view(folder.model, served, maps, gradients),
        "masks": masks_view(folder, [text, _shorter(text)], targets=_targets(served), max_changes=4),
        "positions": positions_view(folder.model),
        "lenses": lens_views(equation, served, rows, tokenizers),
        "scaling": scaling_view(rows, config.head_width, is_scaled=config.scale_scores),
    }
    if served.log_prob is not None:
        views["search"] = search_view(served, folder.tokenizer)
    return views


def _map(module: str, weights: Tensor, served: Served) -> AttentionMap:
    side, _, _, layer, kind = module.split(".")
    is_cross = kind.startswith("cross")
    queries = served.src if side == "encoder" else served.tgt
    keys = served.src if is_cross else queries
    assert queries is not None and keys is not None
    name = "cross" if is_cross else "self"
    return AttentionMap(
        key=f"{side}.{int(layer) + 1}.{name}",
        title=f"{side} layer {int(layer) + 1}, {name}-attention",
        weights=to_array(weights)[0],
        queries=queries,
        keys=keys,
    )


def _shorter(text: str) -> str:
    """The first half of a text, for a batch that needs padding."""
    words = text.split()
    return " ".join(words[: (len(words) + 1) // 2]) if len(words) > 1 else text[: (len(text) + 1) // 2]


def _targets(served: Served) -> list[list[int]] | None:
    """Targets of that batch: the output, and its first half."""
    if served.src is None or served.chosen is None:
        return None
    ids = served.chosen.ids
    return [ids, [*ids[: (len(ids) - 1) // 2], ids[-1]]]


def _why_not(folder: ModelFolder, equation: Equation, served: Served, text: str, reference: str) -> WhyNot:
    """Follows the reference with the cached decoder, one token a step, and sets it against the search."""
    followed = serve(folder, text, target=reference, generation=served.generation)
    log_probs = torch.stack([step[0] for step in search_log_probs(followed, folder.tokenizer)])
    return why_not(equation, served, followed, log_probs, folder.tokenizer)
