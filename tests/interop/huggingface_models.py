"""Tiny random models of transformers with unusual fields, and tiny tokenizers, each saved as a folder."""

from __future__ import annotations

import functools
import io
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: nothing is ever downloaded

import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassformer.interop.huggingface import ImportReport, import_huggingface
from glassformer.tasks.model_folder import ModelFolder, load_model_folder

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXTS = [
    "the cat sat on the mat",
    "We eat bread, and they don't drink water!",
    "hello world hello",
    "a",
    "Über façade naïve 12345 (test) e-mail",
]
CORPUS = [
    *TEXTS,
    "the quick brown fox jumps over the lazy dog",
    "lower case and Upper Case letters",
    "numbers 0 1 2 3",
] * 4


def randomize(model: Any, seed: int = 0, scale: float = 0.25) -> Any:
    """Random numbers in every parameter and in the bias of the logits, so that none is 0 or 1 and outputs differ."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        named = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n == "final_logits_bias")]
        for name, tensor in named:
            if "embed_positions" in name and tensor.requires_grad is False:
                continue  # sinusoids
            tensor.add_(scale * torch.randn(tensor.shape, generator=generator))
    return model.eval()


def wordpiece_folder(path: Path) -> int:
    """A BERT tokenizer by its own class, saved; returns the size of its vocabulary."""
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    library.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=90, special_tokens=special))
    vocab = library.get_vocab()
    path.mkdir(parents=True, exist_ok=True)
    transformers.BertTokenizer(vocab=vocab).save_pretrained(path)
    return len(vocab)


def byte_bpe_folder(path: Path, cls: Any, special: list[str]) -> int:
    """A byte-level BPE tokenizer of a class (GPT-2, RoBERTa, BART), saved; returns the size of its vocabulary."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    library.train_from_iterator(CORPUS, trainer)
    model = json.loads(library.to_str())["model"]
    cls(vocab=model["vocab"], merges=[tuple(merge) for merge in model["merges"]]).save_pretrained(path)
    return len(model["vocab"])


def sentence_pieces(path: Path, **options: Any) -> list[str]:
    """A SentencePiece model learned from the corpus; returns its pieces."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=buffer,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **options,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def t5_folder(path: Path) -> int:
    """T5's tokenizer from a SentencePiece model, saved by its class as tokenizer.json."""
    sentence_pieces(path / "spiece.model", vocab_size=80, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    tokenizer = transformers.T5Tokenizer.from_pretrained(path)
    tokenizer.save_pretrained(path)
    return len(tokenizer)


def llama_folder(path: Path) -> int:
    """A Llama tokenizer (BPE over characters, bytes for what is unknown, a begin token in front), saved."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=340, special_tokens=special))
    state = json.loads(library.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < 3]
    library = tokenizers.Tokenizer.from_str(json.dumps(state))
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(path)
    return len(tokenizer)


def marian_folder(path: Path, *, is_separate: bool = False) -> tuple[int, int]:
    """OPUS-MT's files: two SentencePiece models, and the ids of their pieces; returns the sizes of both lists."""
    pieces = [sentence_pieces(path / f"{side}.spm", vocab_size=size) for side, size in (("source", 74), ("target", 60))]
    head, tail = ["</s>", "<unk>", ">>fr<<"], ["<pad>"]
    own = [sorted({piece for piece in each if piece not in ("<unk>", "<s>", "</s>")}) for each in pieces]
    lists = own if is_separate else [sorted({*own[0], *own[1]})] * 2
    names = [[*head, *each, *tail] for each in lists]
    settings: dict[str, Any] = {"source_lang": "en", "target_lang": "fr", "tokenizer_class": "MarianTokenizer"}
    if is_separate:
        # One pad id for both sides is what a config can hold.
        size = min(map(len, names))
        names = [
            [*each[: size - 1], "<pad>", *(piece for piece in each[size - 1 :] if piece != "<pad>")] for each in names
        ]
        settings["separate_vocabs"] = True
        write_json(path / "target_vocab.json", {name: i for i, name in enumerate(names[1])})
    write_json(path / "vocab.json", {name: i for i, name in enumerate(names[0])})
    write_json(path / "tokenizer_config.json", settings)
    return len(names[0]), len(names[1])


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


ENCODER = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 20, "intermediate_size": 31}
SEQ2SEQ = {
    "d_model": 20,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 31,
    "decoder_ffn_dim": 31,
    "max_position_embeddings": 64,
}
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def build(name: str, path: Path) -> Any:
    """The model of a case, saved with its tokenizer in `path`; each has fields that are not the usual ones."""
    kind, _, variant = name.partition("-")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = randomize(_BUILDERS[kind](path, variant))
    model.save_pretrained(path)
    return model


def _bert(path: Path, variant: str) -> Any:
    config = transformers.BertConfig(
        vocab_size=wordpiece_folder(path) + 3,  # rows without a token
        layer_norm_eps=1e-3,
        hidden_act="relu" if variant == "relu" else "gelu_new",
        max_position_embeddings=40,
        type_vocab_size=3,
        tie_word_embeddings=variant != "untied",
        **ENCODER,
    )
    return (transformers.BertModel if variant == "pooler" else transformers.BertForMaskedLM)(config)


def _roberta(path: Path, variant: str) -> Any:
    size = byte_bpe_folder(path, transformers.RobertaTokenizer, ROBERTA_SPECIAL)
    config = transformers.RobertaConfig(
        vocab_size=size, layer_norm_eps=3e-3, max_position_embeddings=42, type_vocab_size=1, **ENCODER
    )
    return transformers.RobertaForMaskedLM(config)


def _distilbert(path: Path, variant: str) -> Any:
    config = transformers.DistilBertConfig(
        vocab_size=wordpiece_folder(path),
        dim=20,
        n_layers=2,
        n_heads=4,
        hidden_dim=31,
        max_position_embeddings=40,
        sinusoidal_pos_embds=True,
        activation="relu",
    )
    return transformers.DistilBertForMaskedLM(config)


def _gpt2(path: Path, variant: str) -> Any:
    config = transformers.GPT2Config(
        vocab_size=byte_bpe_folder(path, transformers.GPT2Tokenizer, ["<|endoftext|>"]),
        n_embd=20,
        n_layer=2,
        n_head=4,
        n_inner=31,
        n_positions=48,
        layer_norm_epsilon=2e-3,
        activation_function="gelu" if variant == "untied" else "gelu_new",
        scale_attn_weights=variant != "untied",
        tie_word_embeddings=variant != "untied",
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def _llama(path: Path, variant: str) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=llama_folder(path) + 2,
        hidden_size=24,
        intermediate_size=31,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=10,
        rms_norm_eps=4e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        max_position_embeddings=48,
        attention_bias=variant == "tied",
        mlp_bias=variant == "tied",
        tie_word_embeddings=variant == "tied",
        hidden_act="gelu_pytorch_tanh" if variant == "tied" else "silu",
    )
    return transformers.LlamaForCausalLM(config)


def _t5(path: Path, variant: str) -> Any:
    is_new = variant == "v1.1"
    config = transformers.T5Config(
        vocab_size=t5_folder(path) + 6,
        d_model=20,
        d_kv=7,
        d_ff=31,
        num_layers=1,
        num_decoder_layers=2,
        num_heads=3,
        relative_attention_num_buckets=12,
        relative_attention_max_distance=17,
        layer_norm_epsilon=5e-3,
        feed_forward_proj="gated-gelu" if is_new else "relu",
        tie_word_embeddings=not is_new,
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config)
    if is_new:  # this class ties always; a file with both matrices brings them apart
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.shared.weight))
    return model


def _marian(path: Path, variant: str) -> Any:
    src_size, tgt_size = marian_folder(path, is_separate=variant == "separate")
    pad = min(src_size, tgt_size) - 1 if variant == "separate" else src_size - 1
    config = transformers.MarianConfig(
        vocab_size=src_size,
        decoder_vocab_size=tgt_size,
        share_encoder_decoder_embeddings=variant != "separate",
        scale_embedding=True,
        activation_function="swish",
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        **SEQ2SEQ,
    )
    return transformers.MarianMTModel(config)


def _bart(path: Path, variant: str) -> Any:
    size = byte_bpe_folder(path, transformers.BartTokenizer, ROBERTA_SPECIAL)
    is_tied = variant != "untied"  # else each stack has a table of its own
    config = transformers.BartConfig(vocab_size=size, scale_embedding=True, tie_word_embeddings=is_tied, **SEQ2SEQ)
    model = transformers.BartForConditionalGeneration(config)
    model.generation_config.forced_bos_token_id = 0
    return model


def _pegasus(path: Path, variant: str) -> Any:
    config = transformers.PegasusConfig(
        vocab_size=t5_folder(path),
        activation_function="relu",
        scale_embedding=True,
        decoder_start_token_id=0,
        **SEQ2SEQ,
    )
    return transformers.PegasusForConditionalGeneration(config)


_BUILDERS: dict[str, Callable[[Path, str], Any]] = {
    "bert": _bert,
    "roberta": _roberta,
    "distilbert": _distilbert,
    "gpt2": _gpt2,
    "llama": _llama,
    "t5": _t5,
    "marian": _marian,
    "bart": _bart,
    "pegasus": _pegasus,
}
ENCODERS = ("bert", "bert-relu", "bert-untied", "bert-pooler", "roberta", "distilbert")
DECODERS = ("gpt2", "gpt2-untied", "llama", "llama-tied")
TRANSLATORS = ("t5", "t5-v1.1", "marian", "marian-separate", "bart", "bart-untied", "pegasus")


@dataclass(frozen=True)
class Case:
    """A model of transformers, its folder and tokenizer, and what the import made of them."""

    path: Path
    model: Any
    tokenizer: Any
    report: ImportReport
    folder: ModelFolder
    state: dict[str, torch.Tensor]


_FOLDERS = tempfile.TemporaryDirectory(prefix="huggingface_models")


@functools.cache
def case(name: str) -> Case:
    """Built once for all tests."""
    path = Path(_FOLDERS.name) / name
    model = build(name, path)
    report = import_huggingface(path, path.with_suffix(".imported"))
    folder = load_model_folder(path.with_suffix(".imported"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    state = {key: value.clone() for key, value in folder.model.state_dict().items()}
    return Case(path, model, tokenizer, report, folder, state)
