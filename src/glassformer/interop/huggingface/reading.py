"""From a Hugging Face folder to a model folder of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer import __version__
from glassformer.config import Config, DataConfig, ModelConfig, TokenizerConfig
from glassformer.errors import CheckpointError, ConfigError, TokenizerError, suggestion
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.families import ARCHITECTURES
from glassformer.interop.huggingface.fields import Fields
from glassformer.interop.huggingface.files import read_json, read_tensors
from glassformer.interop.huggingface.generation import GENERATION_FIELDS, read_generation
from glassformer.interop.huggingface.sentence_transformers import SentenceSettings, read_sentence_settings
from glassformer.interop.huggingface.table import Mapped, to_ours, without_zero_biases
from glassformer.interop.huggingface.vocabulary import read_tokenizers
from glassformer.model import build_model
from glassformer.shapes import total
from glassformer.tasks.model_folder import save_model_folder
from glassformer.text.imported import ImportedTokenizer, LibraryTokenizer

__all__ = ["ImportReport", "import_huggingface"]


@dataclass(frozen=True)
class ImportReport:
    """What an import made of a folder.

    Attributes:
        model_type: The architecture by its name there.
        config: Ours.
        used: Their tensors and what they fill here.
        left_out: Their tensors that have no place here, each with the reason.
        notes: What else differs.
    """

    model_type: str
    config: Config
    used: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def import_huggingface(path: str | Path, out: str | Path) -> ImportReport:
    """Reads a local Hugging Face folder and writes a model folder.

    Raises:
        CheckpointError: The folder, its weights or its tensors are not what the architecture needs.
        ConfigError: A field of its config is not built here.
        TokenizerError: Its tokenizer cannot be read, or does not fit the model.
    """
    path, out = Path(path), Path(out)
    if out.exists() and any(out.iterdir()):
        raise CheckpointError(f"{out} is not empty.", "A new folder was expected.", "Choose another name.")
    sentence = read_sentence_settings(path)
    folder = sentence.folder
    values = read_json(folder / "config.json")
    architecture = _architecture(values, folder)
    tensors = _renamed(read_tensors(folder), architecture.prefix)
    model, generation = _split_fields(values)
    fields = Fields(model)
    config = architecture.read(fields, tensors)
    fields.require("is_encoder_decoder", config.family == "encoder-decoder", reason="It is another kind of model.")
    fields.take("pad_token_id")  # read with the other ids of special tokens
    fields.finish()
    if (folder / "generation_config.json").is_file():
        generation |= read_json(folder / "generation_config.json")
    tokenizers = read_tokenizers(folder, architecture)
    config, src_tokenizer, tokenizer, notes = _with_ids(config, {**values, **generation}, *tokenizers)
    config = replace(config, pooling=sentence.pooling, is_normalized=sentence.is_normalized)
    with torch.random.fork_rng():  # the fresh weights, all replaced, take nothing from the user's generator
        sizes = {name: tuple(p.shape) for name, p in build_model(config).named_parameters()}
    mapped = to_ours(architecture.table(config), tensors, sizes, architecture.left_out)
    config = without_zero_biases(config, mapped)
    settings, more = read_generation(
        generation,
        is_seq2seq=config.family == "encoder-decoder",
        eos_id=config.eos_id,
        never_made={*tokenizer.never_made, *range(tokenizer.vocab_size, config.vocab_size)},
    )
    whole = Config(
        model=config,
        generation=settings,
        tokenizer=TokenizerConfig(kind=tokenizer.kind, is_shared=src_tokenizer is tokenizer),
        data=_data(config, sentence, tokenizer),
    )
    report = ImportReport(architecture.model_type, whole, mapped.used, mapped.left_out, [*notes, *more, *mapped.notes])
    _save(out, report, mapped, src_tokenizer, tokenizer, path)
    return report


def _save(
    out: Path,
    report: ImportReport,
    mapped: Mapped,
    src_tokenizer: ImportedTokenizer,
    tokenizer: ImportedTokenizer,
    source: Path,
) -> None:
    save_model_folder(
        out,
        config=report.config,
        weights={name: tensor.to(torch.float32).clone() for name, tensor in mapped.state.items()},
        tokenizer=tokenizer,
        src_tokenizer=src_tokenizer,
        metrics={},
        card=_card(report, source.name),
    )


def _architecture(values: Mapping[str, Any], folder: Path) -> Architecture:
    model_type = values.get("model_type")
    if model_type not in ARCHITECTURES:
        raise ConfigError(
            f"{folder / 'config.json'}: model_type={model_type!r} is not built here.",
            f"Known are {', '.join(ARCHITECTURES)}.",
            suggestion(str(model_type), ARCHITECTURES),
        )
    return ARCHITECTURES[model_type]


def _split_fields(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of the network, and settings of generation, which older files hold in config.json too."""
    ids = {"pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id"}
    own = {name: value for name, value in values.items() if name not in GENERATION_FIELDS or name == "pad_token_id"}
    return own, {name: value for name, value in values.items() if name in GENERATION_FIELDS - ids}


def _renamed(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Old names of norms made new, and the names of a base model saved alone as they stand with a head."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        new = name
        for old, part in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
            if name == old or name.endswith(f".{old}"):
                new = name.removesuffix(old) + part
        if new in renamed or (new != name and new in tensors):
            raise CheckpointError(
                f"The weights hold both {name} and {new}, an old and a new name of one tensor.",
                "One of them was expected.",
                "Remove the wrong one from the file.",
            )
        renamed[new] = tensor
    if prefix and not any(name.startswith(prefix) for name in renamed):
        return {prefix + name: tensor for name, tensor in renamed.items()}
    return renamed


def _with_ids(
    config: ModelConfig, values: Mapping[str, Any], src_tokenizer: ImportedTokenizer, tokenizer: ImportedTokenizer
) -> tuple[ModelConfig, ImportedTokenizer, ImportedTokenizer, list[str]]:
    """The ids of special tokens: what config.json and generation_config.json say, else the tokenizer's."""
    is_encoder, notes = config.family == "encoder-only", list[str]()
    special = tokenizer.saved["special"]
    eos = special["eos"] if is_encoder else _one_id(values.get("eos_token_id"), special["eos"])
    pad = _one_id(values.get("pad_token_id"), special["pad"] if is_encoder else None)
    start = special["bos"] if is_encoder else _one_id(values.get("bos_token_id"), special["bos"])
    if config.family == "encoder-decoder":
        start = _one_id(values.get("decoder_start_token_id"), pad if start is None else start)
    if eos is None:
        raise TokenizerError(
            "Neither the tokenizer nor the config names an end token.",
            "A text must be able to end.",
            "Add eos_token (or sep_token) to tokenizer_config.json.",
        )
    if config.family == "decoder-only" and pad == eos:
        pad = None  # a prompt may hold ends of texts, which are no padding
    filler = special["pad"] if pad is None else pad
    roles = {"pad": eos if filler is None else filler, "eos": eos}
    both = [
        each.with_special(**roles, bos=start if each.saved["special"]["bos"] is None else each.saved["special"]["bos"])
        for each in (src_tokenizer, tokenizer)
    ]
    src_tokenizer, tokenizer = both if src_tokenizer is not tokenizer else (both[0], both[0])
    use_bos = config.family != "decoder-only" and special["bos"] is not None
    if isinstance(src_tokenizer, LibraryTokenizer):
        use_bos, has_eos = src_tokenizer.framed()
        if not has_eos and config.family != "decoder-only":
            notes.append("The original's tokenizer puts no end token behind a text; here it does.")
    unk = special["unk"]
    config = replace(
        config,
        pad_id=pad,
        bos_id=eos if start is None else start,
        eos_id=eos,
        unk_id=eos if unk is None else unk,
        use_bos=use_bos,
    )
    return config, src_tokenizer, tokenizer, notes


def _one_id(value: Any, default: int | None) -> int | None:
    if isinstance(value, list) and len(value) != 1:
        raise ConfigError(
            f"eos_token_id={value!r} names several tokens.",
            "Here one token ends a text.",
            "Keep the one that ends texts in generation_config.json and config.json.",
        )
    value = value[0] if isinstance(value, list) else value
    return default if value is None or value < 0 else int(value)


def _data(config: ModelConfig, sentence: SentenceSettings, tokenizer: ImportedTokenizer) -> DataConfig:
    """Limits on texts, and languages where the tokenizer's files name them."""
    limit = sentence.max_tokens or config.max_positions or DataConfig().max_tokens
    if config.max_positions is not None:
        limit = min(limit, config.max_positions)
    options, unnamed = tokenizer.files.get("tokenizer_config.json", {}), DataConfig()
    src, tgt = options.get("source_lang") or unnamed.src, options.get("target_lang") or unnamed.tgt
    return DataConfig(max_tokens=limit, src=str(src), tgt=str(tgt))


def _card(report: ImportReport, source: str) -> str:
    model = report.config.model
    left_out = [f"- {name}: {reason}" for name, reason in report.left_out.items()] or ["Nothing."]
    return "\n".join(
        [
            f"# {source}",
            "",
            f"Imported by glassformer {__version__} from a Hugging Face folder of the type {report.model_type}: "
            f"{model.family}, {total(model):,} parameters, vocabulary {model.vocab_size:,}.",
            "",
            "## Left out",
            "",
            *left_out,
            "",
            "## Limits",
            "",
            "They are those of the original model, which its own card tells.",
            "",
        ]
    )
