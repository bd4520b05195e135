"""README.md of an export: how to load it, and which settings give the same outputs. Its code runs as it stands."""

from __future__ import annotations

import json

from glassformer import __version__
from glassformer.config import GenerationConfig
from glassformer.interop.ctranslate2 import position_limit
from glassformer.interop.ctranslate2_translator import search_options
from glassformer.tasks.model_folder import ModelFolder
from glassformer.text.imported import ImportedTokenizer

__all__ = ["readme"]

_NAMES = {"ctranslate2": "CTranslate2", "onnx": "onnxruntime", "huggingface": "transformers"}
_INSTALL = {
    "ctranslate2": "ctranslate2 tokenizers",
    "onnx": "onnxruntime tokenizers",
    "huggingface": "transformers torch",
}


def readme(folder: ModelFolder, to: str, quantize: str | None) -> str:
    """The text for one model and engine; the working directory is the export's folder."""
    config = folder.config.model
    code = {
        ("ctranslate2", "encoder-decoder"): _ctranslate2_translate,
        ("ctranslate2", "decoder-only"): _ctranslate2_generate,
        ("ctranslate2", "encoder-only"): _ctranslate2_encode,
        ("onnx", "encoder-decoder"): _onnx_translate,
        ("onnx", "decoder-only"): _onnx_generate,
        ("onnx", "encoder-only"): _onnx_encode,
    }.get((to, config.family), _huggingface)(folder)
    kind = f"{config.family}, {config.d_model} wide, {quantize or 'float32'}"
    notes = "\n".join(f"- {note}" for note in _notes(folder, to, quantize))
    return (
        f"# A glassformer model for {_NAMES[to]}\n\n{kind}. Written by glassformer {__version__} and compared with the "
        f"model before it was put here: see export.json.\n\n```\npip install {_INSTALL[to]}\n```\n\n"
        f"```python\n{code}```\n\n{notes}\n"
    )


def _notes(folder: ModelFolder, to: str, quantize: str | None) -> list[str]:
    config, limit = folder.config.model, position_limit(folder)
    notes = [f"Texts longer than {folder.config.data.max_tokens} tokens are longer than those it was trained on."]
    if to == "ctranslate2" and limit is not None:
        notes.append(f"The position table has {limit} rows: no text, read or made, may be longer.")
    elif config.max_positions is not None:
        notes.append(f"No text, read or made, may be longer than {config.max_positions} tokens.")
    if to == "ctranslate2" and config.family == "encoder-decoder":
        notes.append(
            "CTranslate2's own defaults give other outputs: beam 2, its own length penalty, never an empty output, at "
            "most 256 tokens made, inputs cut at 1024 tokens without a word."
        )
    if to == "ctranslate2" and folder.config.generation.is_eos_forced:
        notes.append("glassformer makes the end token the last that the limit allows; CTranslate2 cuts without it.")
    if to == "onnx" and config.family != "encoder-only":
        notes.append("The code above is greedy; glassformer's beam search runs over these graphs by `OnnxDecoding`.")
    if quantize is not None:
        notes.append("Weights are rounded to 8 bits, so outputs may differ from those of the float32 model.")
    return notes


def _is_imported(folder: ModelFolder) -> bool:
    """Whether the tokenizer files are read by glassformer alone: those of models that came from elsewhere."""
    return isinstance(folder.tokenizer, ImportedTokenizer)


def _import_tokenizers(folder: ModelFolder) -> str:
    """The import of what reads the tokenizer files, behind the others."""
    if _is_imported(folder):
        return "from pathlib import Path\n\nfrom glassformer.text.imported import load_tokenizer\n\n"
    return "from tokenizers import Tokenizer\n\n"


def _files(folder: ModelFolder) -> str:
    src = "tokenizer.json" if folder.src_tokenizer is folder.tokenizer else "source_tokenizer.json"
    load = "load_tokenizer(Path(name))" if _is_imported(folder) else "Tokenizer.from_file(name)"
    return f'source, target = ({load} for name in ("{src}", "tokenizer.json"))\n'


def _specials(folder: ModelFolder) -> str:
    """Names of the tokens that are never made, with those of rows that have none."""
    tokenizer = folder.tokenizer
    return json.dumps([tokenizer.names[i] for i in tokenizer.never_made], ensure_ascii=False)


def _encoded(folder: ModelFolder, what: str) -> str:
    """The expression for the tokens or ids of a text as the model reads them."""
    config, prefix = folder.config.model, folder.config.task.prefix
    names = [
        folder.src_tokenizer.names[folder.src_tokenizer.bos_id],
        folder.src_tokenizer.names[folder.src_tokenizer.eos_id],
    ]
    marks = [folder.src_tokenizer.bos_id, folder.src_tokenizer.eos_id] if what == "ids" else names
    text = f"{prefix!r} + text" if prefix else "text"
    if _is_imported(folder):
        ids = f"source.encode({text}, add_bos={config.use_bos}, add_eos=True)"
        return ids if what == "ids" else f"[source.names[i] for i in {ids}]"
    start = f"[{marks[0]!r}, *" if config.use_bos else "[*"
    return f"{start}source.encode({text}, add_special_tokens=False).{what}, {marks[1]!r}]"


def _prompt(folder: ModelFolder, what: str) -> str:
    """The expression for the tokens or ids of a prompt behind the start token."""
    start = folder.config.model.bos_id
    if _is_imported(folder):
        ids = f'[{start}, *source.encode("The")]'
        return ids if what == "ids" else f"[source.names[i] for i in {ids}]"
    first = start if what == "ids" else folder.tokenizer.names[start]
    return f'[{first!r}, *source.encode("The", add_special_tokens=False).{what}]'


def _limit(generation: GenerationConfig) -> str:
    if generation.max_new_tokens is not None:
        return str(generation.max_new_tokens)
    return f"int({generation.max_length_a} * len(read)) + {generation.max_length_b}"


def _ctranslate2_translate(folder: ModelFolder) -> str:
    generation = folder.config.generation
    options = search_options(generation, [])
    del options["suppress_sequences"]
    arguments = "".join(f"        {name}={value!r},\n" for name, value in options.items())
    forced = json.dumps([folder.tokenizer.names[i] for i in [generation.forced_bos_id] if i is not None])
    id_of = "target.names.index(token)" if _is_imported(folder) else "target.token_to_id(token)"
    penalty = {"gnmt": "((5 + n) / 6)", "average": "n", "none": "1"}[generation.length_penalty]
    return (
        f"import ctranslate2\n{_import_tokenizers(folder)}{_files(folder)}"
        f'engine = ctranslate2.Translator(".", device="cpu")\nnever_made = {_specials(folder)}\n\n\n'
        f"def translate(text):\n    read = {_encoded(folder, 'tokens')}\n"
        f"    [result] = engine.translate_batch(\n        [read],\n        [{forced}],\n"
        f"{arguments}        max_decoding_length={_limit(generation)},\n"
        "        suppress_sequences=[[token] for token in never_made],\n    )\n"
        "    lengths = map(len, result.hypotheses)\n"
        f"    scores = [score / {penalty} ** {generation.alpha} for score, n in zip(result.scores, lengths)]\n"
        "    best = result.hypotheses[scores.index(max(scores))]\n"
        f"    return target.decode([{id_of} for token in best if token != {_end(folder)}])\n\n\n"
        'print(translate("We eat bread."))\n'
    )


def _ctranslate2_generate(folder: ModelFolder) -> str:
    return (
        f"import ctranslate2\n{_import_tokenizers(folder)}{_files(folder)}"
        f'engine = ctranslate2.Generator(".", device="cpu")\nnever_made = {_specials(folder)}\n'
        f"read = {_prompt(folder, 'tokens')}\n"
        "[result] = engine.generate_batch(\n    [read],\n    max_length=40,\n    include_prompt_in_result=False,\n"
        "    suppress_sequences=[[token] for token in never_made],\n)\n"
        "print(target.decode(result.sequences_ids[0]))\n"
    )


def _ctranslate2_encode(folder: ModelFolder) -> str:
    segments = ", token_type_ids=[[0] * len(read)]" if folder.config.model.n_segments else ""
    return (
        f"import ctranslate2\nimport numpy as np\n{_import_tokenizers(folder)}{_files(folder)}"
        f'engine = ctranslate2.Encoder(".", device="cpu")\ntext = "We eat bread."\nread = {_encoded(folder, "ids")}\n'
        f"features = np.array(engine.forward_batch([read]{segments}).last_hidden_state)\n"
        "print(features.shape)  # texts, tokens, width\n"
    )


def _onnx_head(folder: ModelFolder) -> str:
    return (
        f"import numpy as np\nimport onnxruntime\n{_import_tokenizers(folder)}{_files(folder)}\n\n"
        "def load(file):\n    session = onnxruntime.InferenceSession(file)\n"
        "    names = [output.name for output in session.get_outputs()]\n"
        "    return lambda **inputs: dict(zip(names, session.run(names, inputs)))\n\n\n"
    )


def _onnx_translate(folder: ModelFolder) -> str:
    config = folder.config.model
    return (
        f'{_onnx_head(folder)}encode, first, later = (\n    load(f"{{part}}.onnx") for part in '
        '("encoder_model", "decoder_model", "decoder_with_past_model")\n)\n'
        f"never_made = {folder.tokenizer.never_made}\n\n\n"
        f"def translate(text):\n    read = {_encoded(folder, 'ids')}\n"
        "    mask = np.ones((1, len(read)), dtype=np.int64)\n"
        '    memory = encode(input_ids=np.array([read]), attention_mask=mask)["last_hidden_state"]\n'
        f"    made, past, run = [{config.bos_id}], {{'encoder_hidden_states': memory}}, first\n"
        f"    while made[-1] != {config.eos_id} and len(made) <= {_limit(folder.config.generation)}:\n"
        "        outputs = run(input_ids=np.array([made[-1:]]), encoder_attention_mask=mask, **past)\n"
        '        logits = outputs.pop("logits")[0, -1]\n        logits[never_made] = -np.inf\n'
        "        made.append(int(logits.argmax()))\n"
        "        keep = {} if run is first else past\n"
        '        past = keep | {name.replace("present", "past_key_values"): array for name, array in outputs.items()}\n'
        "        run = later\n"
        f"    return target.decode([i for i in made[1:] if i != {config.eos_id}])\n\n\n"
        'print(translate("We eat bread."))\n'
    )


def _onnx_generate(folder: ModelFolder) -> str:
    config = folder.config.model
    return (
        f'{_onnx_head(folder)}first, later = load("model.onnx"), load("model_with_past.onnx")\n'
        f"never_made = {folder.tokenizer.never_made}\n"
        f"made = {_prompt(folder, 'ids')}\n"
        "read, past, run = made, {}, first\n"
        f"while made[-1] != {config.eos_id} and len(made) < 40:\n"
        "    mask = np.ones((1, len(made)), dtype=np.int64)\n"
        "    outputs = run(input_ids=np.array([read]), attention_mask=mask, **past)\n"
        '    logits = outputs.pop("logits")[0, -1]\n    logits[never_made] = -np.inf\n'
        "    read = [int(logits.argmax())]\n    made = [*made, *read]\n"
        '    past = {name.replace("present", "past_key_values"): array for name, array in outputs.items()}\n'
        f"    run = later\nprint(target.decode([i for i in made[1:] if i != {config.eos_id}]))\n"
    )


def _onnx_encode(folder: ModelFolder) -> str:
    segments = ", token_type_ids=np.zeros_like(mask)" if folder.config.model.n_segments else ""
    return (
        f'{_onnx_head(folder)}encode = load("model.onnx")\ntext = "We eat bread."\nread = {_encoded(folder, "ids")}\n'
        "mask = np.ones((1, len(read)), dtype=np.int64)\n"
        f"outputs = encode(input_ids=np.array([read]), attention_mask=mask{segments})\n"
        "print({name: array.shape for name, array in outputs.items()})\n"
    )


def _huggingface(folder: ModelFolder) -> str:
    kinds = {"encoder-decoder": "AutoModelForSeq2SeqLM", "decoder-only": "AutoModelForCausalLM"}
    kind = kinds.get(folder.config.model.family, "AutoModel")
    run = "model.generate(**inputs)" if kind != "AutoModel" else "model(**inputs).last_hidden_state"
    show = "tokenizer.batch_decode(outputs, skip_special_tokens=True)" if kind != "AutoModel" else "outputs.shape"
    return (
        f"from transformers import AutoTokenizer, {kind}\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained(".")\nmodel = {kind}.from_pretrained(".")\n'
        f'inputs = tokenizer(["We eat bread."], return_tensors="pt")\noutputs = {run}\nprint({show})\n'
    )


def _end(folder: ModelFolder) -> str:
    return repr(folder.tokenizer.names[folder.config.model.eos_id])
