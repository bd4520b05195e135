"""Zip files from strangers, as office documents are: bounded before anything is unpacked."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

from glassformer.serve.refusal import Refusal

__all__ = ["Archive"]

MAX_ENTRIES = 2000
MAX_BYTES = 64 * 1024 * 1024  # of all entries together, unpacked
_FAULTS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)


class Archive:
    """The entries of a zip file in memory; nothing is written to a disk under their names.

    Raises:
        Refusal: 400, it is damaged, encrypted or too large.
    """

    def __init__(self, content: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except _FAULTS as error:
            raise _unreadable() from error
        self._entries = self._zip.infolist()
        self.names = [entry.filename for entry in self._entries]
        n_bytes = sum(entry.file_size for entry in self._entries)
        if len(self._entries) > MAX_ENTRIES or n_bytes > MAX_BYTES:
            what = f"{len(self._entries)} entries of {n_bytes} bytes"
            raise Refusal(400, f"file: it unpacks to {what}; at most {MAX_ENTRIES} of {MAX_BYTES} are taken.")
        if len(set(self.names)) < len(self.names):
            raise _unreadable()

    def read(self, name: str) -> bytes:
        """An entry; never more of it than its header says."""
        entry = self._zip.getinfo(name)
        try:
            with self._zip.open(entry) as stream:
                content = stream.read(entry.file_size + 1)  # a bound for what is unpacked, whatever comes
        except _FAULTS as error:
            raise _unreadable() from error
        if len(content) != entry.file_size:
            raise _unreadable()
        return content

    def rewritten(self, changed: Mapping[str, bytes]) -> bytes:
        """The file with other contents of some entries, in the same order."""
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for entry in self._entries:
                copy = zipfile.ZipInfo(entry.filename, entry.date_time)
                is_stored = entry.compress_type == zipfile.ZIP_STORED  # as OpenDocument asks of its first entry
                copy.compress_type = zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED
                copy.external_attr = entry.external_attr
                content = changed.get(entry.filename)
                archive.writestr(copy, self.read(entry.filename) if content is None else content)
        return made.getvalue()


def _unreadable() -> Refusal:
    return Refusal(400, "file: it is no document that can be read; it is damaged, encrypted, or of another kind.")
