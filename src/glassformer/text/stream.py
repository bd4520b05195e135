"""Text from ids that arrive one at a time."""

from __future__ import annotations

import codecs

from glassformer.text.tokenizer import Tokenizer

__all__ = ["StreamDecoder"]


class StreamDecoder:
    """Decodes ids one at a time without ever splitting a character.

    The pieces that `push` returns and the end from `finish` joined are `tokenizer.decode(ids)`, also when the
    ids end inside a character. At most three bytes are held back.

    Args:
        tokenizer: Whose ids arrive.
        skip_special: As in `Tokenizer.decode`.

    Cost: linear in the number of ids.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that is complete with this id; empty while a character is unfinished.

        Raises:
            TokenizerError: The id lies outside the vocabulary.
        """
        return self._decoder.decode(self._tokenizer.bytes_of([token_id], skip_special=self._skip_special)[0])

    def finish(self) -> str:
        """What is left when no more ids come: U+FFFD for an unfinished character, or nothing."""
        return self._decoder.decode(b"", final=True)
