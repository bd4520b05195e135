"""One translator in several processes, for many texts."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch

from glassformer.config import GenerationConfig
from glassformer.errors import GlassformerError
from glassformer.generation.hypothesis import Hypothesis
from glassformer.model.quantized import Precision
from glassformer.processes import end_with_parent
from glassformer.tasks.translator import Translator

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TranslatorPool", "shared_by"]


class TranslatorPool:
    """Processes that share the batches of a translator, each with the model and one thread. Use it in a `with` block.

    A step of a small model is hundreds of products too short to be shared between threads, so that N processes do more
    than N threads. Each needs a second or two to begin, and memory for the model.

        with TranslatorPool("runs/enfr", 4) as pool:
            translations = translator.translate(texts, pool=pool)

    The processes are spawned: a script keeps its own work under `if __name__ == "__main__":`.

    Args:
        path: Folder of the translator that is given the pool.
        n_workers: Processes.
        precision: That of the translator.
    """

    def __init__(self, path: str | Path, n_workers: int, *, precision: Precision = "float32") -> None:
        self._n_workers = n_workers
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(n_workers, context, _begin, (str(path), precision))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is KeyboardInterrupt:  # it has not reached the processes
            for process in list((self._executor._processes or {}).values()):
                process.terminate()
        self._executor.shutdown(cancel_futures=True)

    def search(
        self, batches: Iterable[tuple[list[list[int]], list[str]]], generation: GenerationConfig
    ) -> Iterator[list[list[Hypothesis]]]:
        """What `Translator.search` finds for each batch of sources and their texts, in order.

        Raises:
            GlassformerError: A process was killed.
        """
        futures: list[Future[list[list[Hypothesis]]]] = []
        try:
            with _interrupts_held():
                for batch in batches:
                    futures.append(self._executor.submit(_search, *batch, generation))
            for future in futures:
                yield future.result()
        except BrokenProcessPool as error:
            raise GlassformerError(
                f"One of {self._n_workers} processes was killed.",
                "Each must have memory for the model and its batches.",
                "Use fewer workers.",
            ) from error
        finally:
            for future in futures:
                future.cancel()


def shared_by(n_workers: int, path: str | Path, precision: Precision) -> AbstractContextManager[TranslatorPool | None]:
    """A pool of so many processes; none for a single one, which is the caller's."""
    return TranslatorPool(path, n_workers, precision=precision) if n_workers > 1 else nullcontext()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits while processes begin: cut off in the middle they, and the pool, would tell of it at length.

    The mask is for the new processes, which keep it; other threads of this one may get the signal all the same.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    held: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if held:
        raise KeyboardInterrupt


_translators: list[Translator] = []  # the one of this process


def _begin(path: str, precision: Precision) -> None:
    """Loads the model in a new process, which leaves Ctrl-C to the one that it works for, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    torch.set_num_threads(1)
    _translators.append(Translator.load(path, precision=precision))


def _search(sources: list[list[int]], texts: list[str], generation: GenerationConfig) -> list[list[Hypothesis]]:
    return _translators[0].search(sources, texts, generation)
