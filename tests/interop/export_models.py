"""What the tests of exports share: loaded folders of tiny models, as if they had been trained, and ids for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from glassformer.interop.comparison import CheckRows, check_rows
from glassformer.tasks.model_folder import ModelFolder
from helpers import build_tiny

sys.path.insert(0, str(Path(__file__).parent.parent / "tasks"))
import small_models

# Beside the variants of tests/helpers.py, what engines stumble over.
FURTHER: dict[str, dict[str, Any]] = {
    "plain": {},
    "odd-head-width": {"d_head": 5},
    "final-norm-after-post": {"norm_placement": "post", "norm": "rmsnorm", "n_kv_heads": 2},
    "pre-without-final": {"use_final_norm": False},
    "embedding-norm": {"use_embedding_norm": True},
    "unscaled-scores": {"scale_scores": False},
    "large-epsilon": {"norm_eps": 0.1, "use_norm_bias": False, "use_ffn_bias": False},
    "gelu-exact": {"activation": "gelu"},
    "learned-with-offset": {"positions": "learned", "position_offset": 2},
}
ALIBI_OF_SIX_HEADS = {"positions": "alibi", "n_heads": 6, "d_head": 4}


def folder_of(family: str, **changes: Any) -> ModelFolder:
    """A loaded folder without files; its tokenizer has 300 entries."""
    config = small_models.config(family=family, **({"max_positions": 70} | changes))
    tokenizer = small_models.tokenizer()
    return ModelFolder(Path("none"), config, build_tiny(config.model), tokenizer, tokenizer, {})


def rows_for(folder: ModelFolder, folder_of_file: Path) -> CheckRows:
    """A few short texts of unequal lengths, and the two of random pieces, with the model's own outputs."""
    file = folder_of_file / "check.txt"
    file.write_text("yes\nThe cat eats the bread.\nWe see a big house.\n", encoding="utf-8")
    return check_rows(folder, file)
