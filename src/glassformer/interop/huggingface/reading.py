"""From a Hugging Face folder to a model folder of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer import __version__
from glassformer.config import Config, DataConfig, ModelConfig, TokenizerConfig
from glassformer.errors import CheckpointError, ConfigError, TokenizerError
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
from glassformer.tasks.model_folder import load_model_folder, save_model_folder
from glassformer.tasks.probe import save_probe
from glassformer.text.imported import ImportedTokenizer, LibraryTokenizer
from glassformer.training.checkpoint import write_folder

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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out} is not empty.", "A new folder was expected.", "Choose another name.")
    sentence = read_sentence_settings(path)
    folder = sentence.folder
    values = read_json(folder / "config.json")
    architecture = _architecture(values, folder)
    tensors = _renamed(read_tensors(folder), architecture.prefix)
    model, generation = _split_fields(values)
    fields = Fields(model)
    is_seq2seq = architecture.fixed["family"] == "encoder-decoder"
    fields.require("is_encoder_decoder", is_seq2seq, reason="It is another kind of model.")
    config = architecture.read(fields, tensors)
    fields.take("pad_token_id")  # read with the other ids of special tokens
    fields.finish()
    if (folder / "generation_config.json").is_file():  # then nothing reads the settings in config.json
        generation = read_json(folder / "generation_config.json")
    tokenizers = read_tokenizers(folder, architecture)
    config, src_tokenizer, tokenizer, notes = _with_ids(config, {**values, **generation}, *tokenizers)
    config = replace(config, pooling=sentence.pooling, is_normalized=sentence.is_normalized)
    with torch.device("meta"):  # sizes alone: no memory for a model that the weights may not fit
        sizes = {name: tuple(p.shape) for name, p in build_model(config).named_parameters()}
    mapped = to_ours(architecture.table(config), tensors, sizes, architecture.left_out)
    config = without_zero_biases(config, mapped)
    settings, more = read_generation(
        generation,
        is_seq2seq=is_seq2seq,
        vocab_size=config.vocab_size,
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
    weights = {name: tensor.to(torch.float32).clone() for name, tensor in mapped.state.items()}
    with write_folder(out) as folder:
        save_model_folder(
            folder,
            config=report.config,
            weights=weights,
            tokenizer=tokenizer,
            src_tokenizer=src_tokenizer,
            metrics={},
            card=_card(report, source.name),
        )
        save_probe(folder, load_model_folder(folder).model)


def _architecture(values: Mapping[str, Any], folder: Path) -> Architecture:
    model_type = values.get("model_type")
    if "glassformer" in values:  # the version that wrote it
        raise ConfigError(
            f"{folder} is a model folder of glassformer already.",
            "A Hugging Face folder, whose config.json names a model_type, was expected.",
            "Use it as it is.",
        )
    if model_type not in ARCHITECTURES:
        raise ConfigError(
            f"{folder / 'config.json'}: model_type={model_type!r} is not built here.",
            f"Known are {', '.join(ARCHITECTURES)}.",
            "This model cannot be imported; another name in its place would be another network.",
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
    special, id_of = tokenizer.saved["special"], partial(_one_id, values, tokenizer)
    eos = special["eos"] if is_encoder else id_of("eos_token_id", special["eos"])
    pad = id_of("pad_token_id", special["pad"] if is_encoder else None)
    start = special["bos"] if is_encoder else id_of("bos_token_id", special["bos"])
    if config.family == "encoder-decoder":
        start = id_of("decoder_start_token_id", pad if start is None else start)
    if eos is None:
        raise TokenizerError(
            "Neither the tokenizer nor the config names an end token.",
            "A text must be able to end.",
            "Add eos_token (or sep_token) to tokenizer_config.json.",
        )
    if config.family == "decoder-only" and pad in (start, eos, special["unk"]):
        pad = None  # a prompt may hold these, and they are no padding
    if config.family != "decoder-only":
        _require_padding(pad, eos, special)
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


def _require_padding(pad: int | None, eos: int, special: Mapping[str, int | None]) -> None:
    """Padding is told by its id, so it must be that of the tokenizer, and no token of a text."""
    wrong = None
    if special["pad"] not in (None, pad):
        wrong = f"the tokenizer pads with {special['pad']}"
    elif pad in (eos, special["unk"]):
        wrong = "that is its end token or its unknown token too"
    if pad is not None and wrong:
        raise ConfigError(
            f"config.json: pad_token_id={pad}, and {wrong}.",
            "Padding must have one id, which no text has.",
            "Correct pad_token_id in config.json, or pad_token in tokenizer_config.json.",
        )


def _one_id(values: Mapping[str, Any], tokenizer: ImportedTokenizer, name: str, default: int | None) -> int | None:
    """The id of a role as the config gives it, else the default; it must not be an id that texts have."""
    given = values.get(name)
    ids = given if isinstance(given, list) else [given]
    if not all(each is None or type(each) is int for each in ids) or len(set(ids)) != 1:
        raise ConfigError(
            f"{name}={given!r} does not name one token.",
            "Here one token has each role.",
            "Keep the right one (of several ends, the one that ends texts) in generation_config.json and config.json.",
        )
    value = ids[0]
    if value is None or value < 0:
        return default
    if value < tokenizer.vocab_size and value not in tokenizer.special_ids:
        raise ConfigError(
            f"{name}={value} is {tokenizer.names[value]!r}, which texts may hold.",
            "A special token was expected in config.json and generation_config.json.",
            f"Correct {name}, or mark the token as special in the tokenizer's files.",
        )
    return int(value)


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
