"""Writes a token store: whole, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glassformer.data.store import INFO_FILE, StoreInfo, TokenLists
from glassformer.errors import GlassformerError

__all__ = ["StoreWriter"]


class StoreWriter:
    """Appends pairs to the files of a store in `FOLDER.partial`, which `finish` renames when all is on the disk.

    Use it in a `with` block: left without `finish`, it removes what it wrote.

    Args:
        folder: Where the store will be.
        vocab_sizes: Of source and target; ids take two bytes each where they fit, else four.
        n_variants: Tokenisations of each pair.

    Raises:
        GlassformerError: A file cannot be written, for example because the disk is full.
    """

    def __init__(self, folder: Path, vocab_sizes: tuple[int, int], n_variants: int) -> None:
        self.n_pairs = 0
        self._folder, self._partial = folder, folder.with_name(folder.name + ".partial")
        self._names = [(f"src.{k}", f"tgt.{k}") for k in range(n_variants)]
        dtypes = ["<u2" if size <= 1 << 16 else "<u4" for size in vocab_sizes]
        self._files: dict[str, _ArrayFile] = {}
        with self._explained():
            shutil.rmtree(self._partial, ignore_errors=True)  # left by a run that was killed
            self._partial.mkdir(parents=True)
            self._open("domains", "<u2")
            self._open("rows", "<i8")
            for variant in self._names:
                for name, dtype in zip(variant, dtypes, strict=True):
                    self._open(f"{name}.ids", dtype)
                    self._open(f"{name}.offsets", "<i8").append([0])

    def _open(self, name: str, dtype: str) -> _ArrayFile:
        self._files[name] = _ArrayFile(self._partial / name, np.dtype(dtype))
        return self._files[name]

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self._partial, ignore_errors=True)

    def append(
        self,
        domains: Sequence[int],
        rows: Sequence[int],
        variants: Sequence[tuple[TokenLists, TokenLists]],
        is_kept: NDArray[np.bool_],
    ) -> None:
        """Appends the pairs [n] for which is_kept [n] is True: domain, row of the input, ids in every variant."""
        places = np.flatnonzero(is_kept)
        with self._explained():
            self._files["domains"].append(np.asarray(domains)[places])
            self._files["rows"].append(np.asarray(rows)[places])
            for names, variant in zip(self._names, variants, strict=True):
                for name, lists in zip(names, variant, strict=True):
                    ids, offsets = self._files[f"{name}.ids"], self._files[f"{name}.offsets"]
                    offsets.append(ids.n_values + np.cumsum(lists.lengths(places)))
                    ids.append(lists.gather(places))
        self.n_pairs += len(places)

    def finish(self, about: dict[str, Any]) -> None:
        """Writes `store.json` from `about`, the number of pairs and the checksums, and gives the folder its name."""
        with self._explained():
            files = {name: file.close() for name, file in self._files.items()}
            info = StoreInfo(n_pairs=self.n_pairs, files=files, **about)
            with (self._partial / INFO_FILE).open("w", encoding="utf-8") as file:
                file.write(info.to_json())
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self._partial)
            self._partial.replace(self._folder)
            _sync_folder(self._folder.parent)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise GlassformerError(
                f"The token store {self._folder} cannot be written: {error.strerror}.",
                "It needs about 4 bytes a token and 40 bytes a pair.",
                "Free some space or choose another folder, and run the same command again.",
            ) from error


class _ArrayFile:
    """A flat array on disk that grows at its end, with its checksum."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.n_values = 0
        self._dtype, self._sha256 = dtype, hashlib.sha256()
        self._file = path.open("wb")

    def append(self, values: ArrayLike) -> None:
        data = np.ascontiguousarray(values, dtype=self._dtype)
        self._file.write(data.data)
        self._sha256.update(data.data)
        self.n_values += data.size

    def close(self) -> dict[str, Any]:
        """Writes all to the disk and says what stands there."""
        if not self._file.closed:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
        size_bytes = self.n_values * self._dtype.itemsize
        return {"dtype": self._dtype.str, "size_bytes": size_bytes, "sha256": self._sha256.hexdigest()}


def _sync_folder(folder: Path) -> None:
    """Makes renames and new files in a folder durable; only POSIX has a call for it."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
