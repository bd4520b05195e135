"""The token store: pairs of sentences as ids, in flat files that are mapped into memory and never loaded whole."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import DataError

__all__ = ["FORMAT_VERSION", "INFO_FILE", "Integers", "StoreInfo", "TokenLists", "TokenStore", "file_sha256"]

FORMAT_VERSION = 1
INFO_FILE = "store.json"
_BLOCK_BYTES = 1 << 20

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """What `store.json` says about a store."""

    n_pairs: int  # N: pairs in the store
    n_read: int  # rows of the input, the ones left out included
    excluded: dict[str, dict[str, Any]]  # reason -> count, and row, src and tgt of the first row left out for it
    domains: list[str]  # names of the domains; a pair's domain is an index into this list
    src_vocab_hash: str  # hash of the source tokenizer's vocabulary
    tgt_vocab_hash: str  # hash of the target tokenizer's vocabulary
    n_variants: int  # tokenisations of each pair
    bpe_dropout: float  # share of merges skipped in them
    selection: dict[str, Any]  # the settings that decided which rows were left out
    inputs_sha256: str  # fingerprint of the rows read, in their order
    files: dict[str, dict[str, Any]]  # file name -> dtype, size_bytes, sha256
    n_cut: int = 0  # sources that were cut to the most tokens

    def to_json(self) -> str:
        """The text of `store.json`. Its own checksum stands beside the content."""
        content = asdict(self)
        return json.dumps({"format": FORMAT_VERSION, "sha256": _digest(content), "store": content}, indent=1) + "\n"

    @classmethod
    def read(cls, folder: Path) -> StoreInfo:
        """Reads `store.json`. Raises DataError when it is missing, damaged, or of another format."""
        path = folder / INFO_FILE
        try:
            text = json.loads(path.read_text(encoding="utf-8"))
            version, checksum, content = text["format"], text["sha256"], text["store"]
        except FileNotFoundError:
            raise _damaged(folder, f"{INFO_FILE} is missing") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(folder, f"{INFO_FILE} cannot be read ({error})") from error
        if version != FORMAT_VERSION:
            raise DataError(
                f"The token store {folder} has format {version}.",
                f"This version reads format {FORMAT_VERSION}.",
                "Remove the folder and prepare the data again.",
            )
        if checksum != _digest(content):
            raise _damaged(folder, f"{INFO_FILE} does not match its checksum")
        return cls(**content)


@dataclass(frozen=True)
class TokenLists:
    """One side of the pairs: N lists of ids, end to end in one array.

    Attributes:
        ids: [n_ids] uint16 or uint32, without BOS and EOS.
        offsets: [N + 1] int64; list i is `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: Integers
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Integers:
        i = range(len(self))[i]
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def lengths(self, rows: Integers) -> NDArray[np.int64]:
        """Number of ids of each of `rows` [n]."""
        return np.subtract(self.offsets[rows + 1], self.offsets[rows], dtype=np.int64)

    def gather(self, rows: Integers) -> NDArray[np.int64]:
        """The lists of `rows` [n] end to end: [sum of their lengths] int64."""
        lengths = self.lengths(rows)
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.offsets[rows] - (ends - lengths), lengths)
        ids: NDArray[np.int64] = self.ids[places].astype(np.int64)
        return ids


class TokenStore:
    """N pairs of sentences as ids, memory-mapped.

    `store.src(i)` and `store.tgt(i)` are the ids of pair i, as views into the files. With BPE dropout a store holds
    several tokenisations of the same pairs; `store.variant(k)` is the store of the k-th one.

    Attributes:
        folder: Where the files lie.
        info: What `store.json` says.
        checksum: Identifies the store: equal checksums mean equal bytes in every file.
        sources: The source sides.
        targets: The target sides.
        domain_ids: [N] uint16, index into `info.domains`.
        row_numbers: [N] int64, the pair's row in the input, counted as the reader counts.
    """

    def __init__(self, folder: Path, info: StoreInfo, variant: int = 0) -> None:
        self.folder, self.info = folder, info
        self.checksum = _digest(asdict(info))
        self.sources, self.targets = (
            TokenLists(self._map(f"{side}.{variant}.ids"), self._map(f"{side}.{variant}.offsets"))
            for side in ("src", "tgt")
        )
        self.domain_ids: NDArray[np.uint16] = self._map("domains")
        self.row_numbers: NDArray[np.int64] = self._map("rows")

    @classmethod
    def open(cls, folder: Path) -> TokenStore:
        """Opens a store and checks every byte of it.

        Raises:
            DataError: The store is missing, cut short, damaged, or of another format.
        """
        info = StoreInfo.read(folder)
        for name, about in info.files.items():
            path = folder / name
            if not path.is_file():
                raise _damaged(folder, f"{name} is missing")
            if path.stat().st_size != about["size_bytes"]:
                raise _damaged(folder, f"{name} has {path.stat().st_size} bytes instead of {about['size_bytes']}")
            if file_sha256(path) != about["sha256"]:
                raise _damaged(folder, f"{name} does not match its checksum")
        return cls(folder, info)

    def _map(self, name: str) -> NDArray[Any]:
        about = self.info.files[name]
        dtype = np.dtype(about["dtype"])
        if about["size_bytes"] == 0:  # an empty file cannot be mapped
            return np.empty(0, dtype=dtype)
        return np.memmap(self.folder / name, dtype=dtype, mode="r").view(np.ndarray)

    def __len__(self) -> int:
        return self.info.n_pairs

    @property
    def excluded(self) -> dict[str, dict[str, Any]]:
        """What was left out: reason -> count, and row, src and tgt of the first such row."""
        return self.info.excluded

    @property
    def n_variants(self) -> int:
        """Tokenisations of each pair."""
        return self.info.n_variants

    def variant(self, k: int) -> TokenStore:
        """The same pairs in their k-th tokenisation, 0 <= k < n_variants."""
        return TokenStore(self.folder, self.info, range(self.n_variants)[k])

    def src(self, i: int) -> Integers:
        """Ids of the source of pair i, without BOS and EOS."""
        return self.sources[i]

    def tgt(self, i: int) -> Integers:
        """Ids of the target of pair i, without BOS and EOS."""
        return self.targets[i]

    def domain(self, i: int) -> str:
        """Name of the domain of pair i; empty when the input had none."""
        return self.info.domains[int(self.domain_ids[i])]

    @property
    def n_tokens(self) -> int:
        """Ids of all rows, without BOS and EOS; targets that are the words of their sources are no tokens."""
        n_targets = 0 if self.info.selection.get("with_words") else int(self.targets.offsets[-1])
        return int(self.sources.offsets[-1]) + n_targets

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """[N, 2] ids of each source and target, without BOS and EOS."""
        return np.stack([np.diff(side.offsets) for side in (self.sources, self.targets)], axis=1).astype(np.int32)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in blocks (a mapped file would count as resident memory)."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(folder: Path, how: str) -> DataError:
    return DataError(
        f"The token store {folder} is damaged: {how}.",
        f"{INFO_FILE} and every file that it names were expected, as they were written.",
        "Remove the folder and prepare the data again.",
    )
