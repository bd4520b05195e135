"""`TranslatorPool`: what one translator says, from several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.errors import ConfigError, GlassformerError
from glassformer.tasks import Translator, TranslatorPool
from tasks.small_models import LONG, save_folder

TEXTS = ["we eat bread", "a", "", LONG, "it is \u00e9t\u00e9", "two\nlines", "\u200b"] * 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def pool(folder: Path) -> Iterator[TranslatorPool]:
    with TranslatorPool(folder, 2) as pool:
        yield pool


def test_texts_have_what_one_process_says_in_order(folder: Path, pool: TranslatorPool) -> None:
    translator = Translator.load(folder)
    for generation in (translator.generation, replace(translator.generation, do_sample=True, n_best=2, seed=3)):
        n_done: list[int] = []
        shared = translator.translate(
            TEXTS, generation=generation, batch_tokens=100, pool=pool, on_progress=n_done.append
        )
        alone = translator.translate(TEXTS, generation=generation, batch_tokens=100)
        for found, expected in zip(shared, alone, strict=True):
            assert (found.text, found.ids, found.n_segments) == (expected.text, expected.ids, expected.n_segments)
            assert [t.ids for t in found.alternatives] == [t.ids for t in expected.alternatives]
            assert found.score == pytest.approx(expected.score, abs=1e-4)
        assert len(n_done) > 3 and n_done == sorted(n_done)
    assert translator.translate([], pool=pool) == []


def test_an_error_in_a_process_comes_as_it_is_and_the_pool_goes_on(folder: Path, pool: TranslatorPool) -> None:
    translator = Translator.load(folder)
    forced = replace(translator.generation, forced_bos_id=10**6)
    with pytest.raises(ConfigError, match="forced_bos_id") as caught:
        translator.translate(TEXTS, generation=forced, batch_tokens=100, pool=pool)
    assert caught.value.remedy
    assert len(translator.translate(["a"], pool=pool)) == 1


def test_a_process_that_is_killed_is_told(folder: Path) -> None:
    translator = Translator.load(folder)
    with TranslatorPool(folder, 1) as pool:
        translator.translate(["a"], pool=pool)
        (worker,) = workers_of(pool)
        os.kill(worker, signal.SIGKILL)
        for _ in range(2):  # and again, whenever it is used
            with pytest.raises(GlassformerError, match="killed"):
                translator.translate(["a"] * 3, pool=pool)


def workers_of(pool: TranslatorPool) -> list[int]:
    return list(pool._executor._processes)


SCRIPT = """
import sys, time
from glassformer.tasks import Translator, TranslatorPool
if __name__ == "__main__":
    translator = Translator.load(sys.argv[1])
    with TranslatorPool(sys.argv[1], 2) as pool:
        translator.translate(["a"] * 8, batch_tokens=1, pool=pool)
        print(*pool._executor._processes, flush=True)
        time.sleep(60)
"""


def test_the_processes_end_with_the_one_they_work_for(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert workers
        process.kill()
        process.wait()
        end = time.monotonic() + 20
        while any(map(is_alive, workers)) and time.monotonic() < end:
            time.sleep(0.1)
        assert not any(map(is_alive, workers))


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended may lie there until somebody asks for its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
