"""An index of texts by their embeddings: searched exactly, and bound to the model that made it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.store import file_sha256
from glassformer.errors import CheckpointError, DataError, GlassformerError, UserError
from glassformer.tasks.embedder import Embedder, Vectors
from glassformer.tasks.model_folder import CONFIG, TOKENIZER, WEIGHTS
from glassformer.tasks.vector_file import VectorFile

__all__ = ["Found", "Index", "build_index", "model_sha256"]

INFO, VECTORS, TEXTS = "index.json", "vectors.npy", "texts.jsonl"
FORMAT = 1
CHUNK_TEXTS = 1000  # texts embedded and written together


@dataclass(frozen=True)
class Found:
    """A text of the index: its inner product with the query, its line in the indexed file (from 1), itself."""

    score: float
    line: int
    text: str


def model_sha256(path: Path) -> str:
    """Identifies what decides a model's vectors: its weights, config and tokenizer."""
    try:
        hashes = [file_sha256(path / name) for name in (WEIGHTS, CONFIG, TOKENIZER)]
    except OSError as error:
        raise CheckpointError(
            f"{error.filename} cannot be read: {error.strerror}.", "A model folder was expected.", "Check the name."
        ) from error
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def build_index(
    model: str | Path,
    lines: Iterable[str],
    out: Path,
    *,
    width: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Embeds each line that is not blank and writes the index folder: whole, or not at all.

    Args:
        model: A model folder that embeds.
        lines: The texts; line numbers count from 1, blank lines too.
        out: The new folder.
        width: Keep only so many features; see `Embedder.embed`.
        on_progress: Called with the number of lines read so far.

    Returns:
        What index.json says: among it n_texts, n_blank, n_cut.

    Raises:
        DataError: No text to index, or the folder exists.
        GlassformerError: It cannot be written.
    """
    if out.exists():
        raise DataError(f"{out} exists already.", "An index is a new folder.", "Remove it, or choose another name.")
    model = Path(model).resolve()
    embedder = Embedder.load(model)
    partial = out.with_name(f".{out.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # left by a build that was killed
        partial.mkdir(parents=True)
        info = _write_texts(embedder, lines, partial, width, on_progress)
        if not info["n_texts"]:
            raise DataError(
                f"{info['n_blank']} blank lines and no text were given.", "One text a line was expected.", "Check it."
            )
        info |= {"format": FORMAT, "model": str(model), "model_sha256": model_sha256(model)}
        info["files"] = {name: file_sha256(partial / name) for name in (VECTORS, TEXTS)}
        (partial / INFO).write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise GlassformerError(
            f"The index {out} cannot be written: {error.strerror}.",
            f"It needs {4 * (width or embedder.width)} bytes a text beside the texts.",
            "Free some space, or choose another folder.",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return info


def _write_texts(
    embedder: Embedder, lines: Iterable[str], folder: Path, width: int | None, on_progress: Callable[[int], None] | None
) -> dict[str, Any]:
    n_texts = n_lines = 0
    cut: list[int] = []
    numbered = enumerate(lines, 1)
    with VectorFile(folder / VECTORS, width or embedder.width) as vectors, (folder / TEXTS).open("wb") as texts:
        while chunk := list(islice(numbered, CHUNK_TEXTS)):
            kept = [(number, text) for number, text in chunk if text.strip()]
            cut_here: list[int] = []
            vectors.append(embedder.embed([text for _, text in kept], width=width, on_cut=cut_here.append))
            cut += [kept[i][0] for i in cut_here]
            for number, text in kept:
                texts.write(json.dumps({"line": number, "text": text}, ensure_ascii=False).encode() + b"\n")
            n_texts, n_lines = n_texts + len(kept), chunk[-1][0]
            if on_progress is not None:
                on_progress(n_lines)
        texts.flush()
        os.fsync(texts.fileno())
    counts = {"n_texts": n_texts, "n_blank": n_lines - n_texts, "n_cut": len(cut), "cut_lines": cut[:10]}
    return counts | {"max_tokens": embedder.max_tokens, "width": width or embedder.width}


class Index:
    """A loaded index. `Index.load("wiki.index").search(["who wrote Hamlet"], k=5)`.

    Search is exact: every text is compared (faiss, IndexFlatIP).

    Args:
        path: The folder, for messages.
        info: What index.json says.
        vectors: float32 [n, width].
        texts: n lines of JSON.
        embedder: The model that made it.
    """

    def __init__(
        self, path: Path, info: dict[str, Any], vectors: Vectors, texts: Sequence[bytes], embedder: Embedder
    ) -> None:
        self.path, self.info, self._texts, self.embedder = path, info, texts, embedder
        self._index = _faiss().IndexFlatIP(info["width"])
        self._index.add(vectors)

    @classmethod
    def load(cls, path: str | Path, *, model: str | Path | None = None) -> Index:
        """Loads an index and its model.

        Args:
            path: The folder.
            model: The model folder, where it is no longer where the index was built.

        Raises:
            DataError: The index is missing, damaged, or of another format.
            CheckpointError: The model is missing, or another one.
            UserError: faiss is not installed.
        """
        path = Path(path)
        _faiss()
        info = _read_info(path)
        folder = Path(model if model is not None else info["model"])
        if not folder.is_dir():
            raise CheckpointError(
                f"The model of this index is no longer at {folder}.",
                "A query needs the model that made the vectors.",
                "Say where it is: --model FOLDER.",
            )
        if model_sha256(folder) != info["model_sha256"]:
            raise CheckpointError(
                f"{folder} is not the model that made {path}.",
                f"Its vectors come from {info['model']}, as it was then; others cannot be compared with them.",
                "Name that model with --model, or build the index again.",
            )
        vectors = np.load(path / VECTORS, allow_pickle=False)
        texts = (path / TEXTS).read_bytes().splitlines()
        return cls(path, info, vectors, texts, Embedder.load(folder))

    def __len__(self) -> int:
        return len(self._texts)

    def search(
        self, queries: Sequence[str], *, k: int = 10, on_cut: Callable[[int], None] | None = None
    ) -> list[list[Found]]:
        """The k texts (or all, when there are fewer) of largest inner product with each query, best first.

        Args:
            queries: Any number of texts.
            k: Results for each.
            on_cut: As in `Embedder.embed`.

        Raises:
            UserError: k is below 1.
        """
        if k < 1:
            raise UserError(f"k={k} results were asked for.", "1 or more was expected.", "Use -k 10, say.")
        if not queries:
            return []
        vectors = self.embedder.embed(queries, width=self.info["width"], on_cut=on_cut)
        scores, places = self._index.search(vectors, min(k, len(self)))
        return [list(self._found(*row)) for row in zip(scores.tolist(), places.tolist(), strict=True)]

    def _found(self, scores: list[float], places: list[int]) -> Iterator[Found]:
        for score, place in zip(scores, places, strict=True):
            content = json.loads(self._texts[place])
            yield Found(score, content["line"], content["text"])


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise UserError(
            "Searching needs the package faiss-cpu, which is not installed.",
            "It is an extra of glassformer.",
            "Install it: pip install 'glassformer[search]'.",
        ) from error
    return faiss


def _read_info(path: Path) -> dict[str, Any]:
    """index.json, after a check of every byte of the index."""
    try:
        info = json.loads((path / INFO).read_text(encoding="utf-8"))
        version, files = info["format"], info["files"]
    except FileNotFoundError:
        raise DataError(
            f"{path} is no index: it has no {INFO}.", "A folder made by `glassformer index` was expected.", "Build one."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"{INFO} cannot be read ({error})") from error
    if version != FORMAT:
        raise DataError(f"{path} has format {version}.", f"This version reads {FORMAT}.", "Build the index again.")
    for name in (VECTORS, TEXTS):
        if not (path / name).is_file():
            raise _damaged(path, f"{name} is missing")
        if file_sha256(path / name) != files.get(name):
            raise _damaged(path, f"{name} does not match its checksum")
    return dict(info)


def _damaged(path: Path, how: str) -> DataError:
    return DataError(
        f"The index {path} is damaged: {how}.", "Its files were expected as they were written.", "Build it again."
    )
