"""The files of an ONNX export in onnxruntime: shapes that were not traced, cache, int8, our search (X3, N16)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from export_models import folder_of, rows_for

from glassformer.config import GenerationConfig
from glassformer.interop.comparison import compare
from glassformer.interop.engines import OnnxEngine
from glassformer.interop.export_readme import readme
from glassformer.interop.onnx import OPSET, export_onnx
from glassformer.interop.onnx_decoding import OnnxTranslator
from glassformer.tasks.model_folder import ModelFolder
from glassformer.tasks.translator import Translator
from helpers import random_ids

pytest.importorskip("onnxscript")
onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow  # the exporter takes ten seconds a graph, whatever the model

Exported = tuple[ModelFolder, Path]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = folder_of("encoder-decoder", n_decoder_layers=2, max_positions=None, attention_dropout=0.5, dropout=0.5)
    out = tmp_path_factory.mktemp("translator")
    export_onnx(folder, out)
    return folder, out


def test_every_declared_axis_is_symbolic_and_the_versions_are_there(translator: Exported) -> None:
    _, out = translator
    assert {path.name for path in out.glob("*.onnx*")} == {
        "encoder_model.onnx",
        "decoder_model.onnx",
        "decoder_with_past_model.onnx",
    }
    for path in out.glob("*.onnx"):
        model = onnx.load(path)
        onnx.checker.check_model(model)
        assert [opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")] == [OPSET]
        facts = {entry.key: entry.value for entry in model.metadata_props}
        assert json.loads(facts["config"])["d_model"] == 20 and facts["glassformer"]
        kinds = {node.op_type for node in model.graph.node}
        assert not kinds & {"Dropout", "RandomUniform", "RandomUniformLike", "Bernoulli"}
        for given in model.graph.input:
            dims = given.type.tensor_type.shape.dim
            assert dims[0].dim_param == "batch"
            if given.name != "encoder_hidden_states":
                assert dims[2 if "past" in given.name else 1].dim_param, given.name


@pytest.mark.parametrize(("n_rows", "n_src", "n_tgt"), [(1, 1, 1), (1, 7, 2), (3, 33, 5), (5, 70, 71)])
def test_shapes_that_were_not_traced(translator: Exported, n_rows: int, n_src: int, n_tgt: int) -> None:
    folder, out = translator
    engine = OnnxEngine(out, folder)
    src, tgt = random_ids(n_rows, n_src, vocab_size=300), random_ids(n_rows, n_tgt, seed=1, vocab_size=300)
    mask = torch.ones_like(src)
    if n_rows > 1:
        mask[0, -3:], mask[1, :2] = 0, 0  # pads on the right, and on the left
    encoded = engine.graphs.run("encoder_model.onnx", input_ids=src.numpy(), attention_mask=mask.numpy())
    inputs = {"encoder_hidden_states": encoded["last_hidden_state"], "encoder_attention_mask": mask.numpy()}
    logits = engine.graphs.run("decoder_model.onnx", input_ids=tgt.numpy(), **inputs)["logits"]
    with torch.no_grad():
        expected = folder.model(src, tgt, src_mask=mask.bool())
    np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4)


def test_our_search_over_the_graphs_finds_the_same(translator: Exported) -> None:
    folder, out = translator
    texts = ["The cat eats the bread.", "yes", "We see a big house in the town."]
    generation = GenerationConfig(beam_size=3, n_best=2, max_length_a=0, max_length_b=9)
    ours = Translator.of(folder).translate(texts, generation=generation)
    theirs = OnnxTranslator.over(out, folder).translate(texts, generation=generation)
    assert [t.ids for t in theirs] == [t.ids for t in ours]
    assert [t.score for t in theirs] == pytest.approx([t.score for t in ours], abs=1e-4)
    assert [t.alternatives[0].ids for t in theirs] == [t.alternatives[0].ids for t in ours]


def readme_output(folder: ModelFolder, out: Path) -> str:
    """What the code of the export's README prints."""
    folder.tokenizer.save(out / "tokenizer.json")
    [code] = re.findall(r"```python\n(.*?)```", readme(folder, "onnx", None), re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=out, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_translates_greedily_as_we_do(translator: Exported) -> None:
    folder, out = translator
    generation = replace(folder.config.generation, beam_size=1)
    [expected] = Translator.of(folder).translate(["We eat bread."], generation=generation)
    assert readme_output(folder, out) == expected.text + "\n"


@pytest.mark.parametrize("family", ["decoder-only", "encoder-only"])
def test_the_other_families_float_and_int8(family: str, tmp_path: Path) -> None:
    options = (
        {"use_pooler": True, "n_segments": 2}
        if family == "encoder-only"
        else {"positions": "rotary", "n_decoder_layers": 2}
    )
    folder = folder_of(family, **options)
    export_onnx(folder, tmp_path, quantize="int8")
    engine = OnnxEngine(tmp_path, folder)
    comparison = compare(folder, engine, rows_for(folder, tmp_path), is_int8=True)
    assert comparison.is_same, comparison
    assert comparison.max_difference > 1e-4  # it really is int8
    assert not list(tmp_path.glob("*float32*"))
    assert readme_output(folder, tmp_path).strip()
