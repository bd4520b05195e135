"""What the scripts compare computes the same, and the checks for an accelerator hold on a CPU. Nothing is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import accelerator
import decoding
import models
import pytest
import torch
import training_step

from glassformer.model import EncoderDecoder
from glassformer.model.quantized import with_precision
from glassformer.shapes import flops_per_token

CONFIG = models.model_config("least")
SHAPE = (3, 5, 7)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same random weights for every engine."""
    folder = tmp_path_factory.mktemp("work")
    models.write(models.random_folder(CONFIG), folder, {models.OURS, "transformers", "ctranslate2", "torch.nn"})
    return folder


def test_every_engine_decodes_the_same_tokens(work: Path) -> None:
    src = decoding.sources(2, 1000, CONFIG.eos_id)
    found = {way: decoding.load(way, work, 1)(src, 1, 6) for way in decoding.EXACT}
    assert [len(row) for row in found["float32"]] == [6, 6]
    assert found["transformers"] == found["ctranslate2"] == found["float32"]


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_peers_in_training_have_the_same_loss_before_and_after_steps(work: Path, dtype: str) -> None:
    ways = {name: training_step.load(name, dtype, work, SHAPE) for name in ("glassformer", "torch.nn", "transformers")}
    tolerance = 2e-3 if dtype == "bf16" else 2e-5  # of a loss of about 7: a unit of rounding of each type
    before = {name: way.loss() for name, way in ways.items()}
    assert before["torch.nn"] == pytest.approx(before["glassformer"], rel=tolerance)
    assert before["transformers"] == pytest.approx(before["glassformer"], rel=tolerance)
    for way in ways.values():
        way.steps(3)
    after = {name: way.loss() for name, way in ways.items()}
    assert after["glassformer"] < before["glassformer"]
    assert after["torch.nn"] < before["torch.nn"] and after["transformers"] < before["transformers"]


@pytest.mark.parametrize(
    "line",
    [
        "decoding.load('transformers', work, 1)(decoding.sources(1, 1000, 2), 1, 2)",
        "decoding.load('ctranslate2', work, 1)(decoding.sources(1, 1000, 2), 1, 2)",
        "text_generation.transformers_way, sentences.tokenizers_of(work / 'glassformer'), embeddings.onnxruntime_way",
        "training_step.load('torch.nn', 'float32', work, (3, 5, 7)).steps(1)",
        "training_step.load('transformers', 'float32', work, (3, 5, 7)).steps(1)",
    ],
)
def test_a_process_of_a_peer_imports_no_model_of_the_product(work: Path, line: str) -> None:
    names = ("decoding", "text_generation", "sentences", "embeddings", "training_step")
    script = f"import sys; from pathlib import Path; sys.path.insert(0, {str(Path(models.__file__).parent)!r})\n"
    script += f"import {', '.join(names)}; work = Path({str(work)!r}); {line}\n"
    script += "print(*(name for name in sys.modules if name.startswith(('glassformer.model', 'glassformer.alloc'))))"
    done = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.strip() == ""


def test_a_round_makes_as_many_updates_as_it_says(work: Path) -> None:
    stream = training_step.OneBatch(training_step.fixed_batch(CONFIG, *SHAPE))
    stream.n_left = 2
    assert next(stream) is stream.group and next(stream) is stream.group
    with pytest.raises(training_step._Enough):
        next(stream)
    assert (stream.group.n_tokens, stream.group.n_sentences) == (21, 3)
    assert training_step.n_tokens(SHAPE) == 36


def test_the_matrix_limit_weighs_each_product_by_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {(32, 32): 1.0, (32, 64): 2.0, (64, 32): 2.0, (32, 1200): 4.0}
    monkeypatch.setattr(training_step.machine, "matrix_rate", lambda rows, k, n, dtype: rates[k, n])
    _, s, t = training_step.SHAPE
    square, inner, logits = 32 * 32 * (4 * s + 6 * t + 2 * s), 2 * 32 * 64 * (s + t), 32 * 1200 * t
    expected = (square + inner + logits) / (square + inner / 2 + logits / 4)
    assert training_step.matrix_limit(CONFIG, "float32") == pytest.approx(expected)
    # The same products as those that the FLOPs of a token count, but for the attention maps.
    products = 2 * (square + inner + logits) / (s + t)
    maps = 4 * 32 * (s * s + t * t + t * s) / (s + t)
    assert flops_per_token(CONFIG, s, t).forward == pytest.approx(products + maps)


def test_checks_for_an_accelerator_hold_on_a_cpu(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accelerator.require_right(CONFIG, work, "cpu")
    assert "All checks passed." in capsys.readouterr().out
    assert set(accelerator.checks(CONFIG, "cpu")) == {
        "reference, float32",
        "fused, float32",
        "cached, float32",
        "fused, bf16",
        "cached, bf16",
    }


def test_a_wrong_cache_is_found(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = accelerator.cached_logits

    def wrong(model: EncoderDecoder, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        return right(model, src, tgt.roll(1, 1))

    monkeypatch.setattr(accelerator, "cached_logits", wrong)
    with pytest.raises(SystemExit, match="Beyond the bound: cached, float32; cached, bf16"):
        accelerator.require_right(CONFIG, work, "cpu")


def test_a_wrong_precision_is_found(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(model: EncoderDecoder, precision: str) -> EncoderDecoder:
        other = with_precision(model, precision)  # type: ignore[arg-type]
        with torch.no_grad():
            other.decoder.stack.blocks[0].feed_forward.w_2.weight.mul_(2)  # type: ignore[union-attr, operator]
        return other

    monkeypatch.setattr(accelerator, "with_precision", damaged)
    with pytest.raises(SystemExit, match="fused, bf16; cached, bf16"):
        accelerator.require_right(CONFIG, work, "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_an_accelerator_the_script_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["accelerator.py"])
    with pytest.raises(SystemExit, match="torch sees none here"):
        accelerator.main()
