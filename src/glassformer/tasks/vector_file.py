"""A .npy file of vectors that grows while it is written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["VectorFile"]


class VectorFile:
    """Appends float32 rows to a .npy file; the number of rows goes into its header at the end.

    Use it in a `with` block. numpy's headers leave room for the first axis to grow, so the header is written over in
    place, and no more than one chunk is ever held in memory.

    Args:
        path: The file, which is overwritten.
        width: Features of a row.
    """

    def __init__(self, path: Path, width: int) -> None:
        self.n_rows, self._width = 0, width
        self._file = path.open("wb")
        self._write_header()
        self._start = self._file.tell()

    def append(self, vectors: NDArray[np.float32]) -> None:
        """Writes rows [n, width]."""
        assert vectors.shape[1] == self._width
        self._file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        self.n_rows += len(vectors)

    def __enter__(self) -> VectorFile:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._file:
            self._file.seek(0)
            self._write_header()
            assert self._file.tell() == self._start
            self._file.flush()
            os.fsync(self._file.fileno())

    def _write_header(self) -> None:
        shape = (self.n_rows, self._width)
        npy.write_array_header_1_0(self._file, {"descr": "<f4", "fortran_order": False, "shape": shape})
