"""`glassformer translate`: one line out for each line in, from anywhere to anywhere."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.tasks import Translator
from tasks.small_models import LONG, config, save_folder
from training.runs import run_cli

TEXTS = ["", "we eat bread", "   ", "a", "\u200b", LONG, "a", "it is \u00e9t\u00e9"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def expected(model: Path) -> list[str]:
    return [t.text.replace("\n", " ").replace("\r", " ") for t in Translator.load(model).translate(TEXTS)]


@pytest.fixture
def run(model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run_cli(["translate", str(model), *arguments], monkeypatch)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


def encoded(texts: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def lines(text: str) -> list[str]:
    assert text.endswith("\n")
    return text.split("\n")[:-1]


def test_arguments_file_and_standard_input_give_the_same(run: Run, tmp_path: Path, expected: list[str]) -> None:
    (tmp_path / "in.txt").write_bytes(encoded(TEXTS))
    assert len({*expected}) > 4
    assert lines(run(*TEXTS)[1]) == expected
    assert lines(run("--input", str(tmp_path / "in.txt"))[1]) == expected
    assert lines(run(stdin=encoded(TEXTS))[1]) == expected
    assert lines(run("--input", "-", stdin=encoded(TEXTS))[1]) == expected
    code, out, _ = run("--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt"))
    assert (code, out) == (0, "")
    assert lines((tmp_path / "out.txt").read_bytes().decode()) == expected


def test_empty_file_gives_an_empty_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"")
    assert run("--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt"))[0] == 0
    assert (tmp_path / "out.txt").read_bytes() == b""
    assert run(stdin=b"") == (0, "", "")


def test_only_newlines_end_lines(run: Run) -> None:
    odd = "one\u2028two\u2029three\x85four\nfive\x0bsix\x0cseven\x1ceight\nnine\x1dten\x1eeleven\rtwelve\n"
    assert odd.count("\n") == 3
    assert len(lines(run(stdin=odd.encode())[1])) == 3
    plain = lines(run(stdin=b"hello\nworld\n")[1])
    assert lines(run(stdin=b"\xef\xbb\xbfhello\r\nworld\r\n")[1]) == plain
    assert lines(run(stdin=b"hello\nworld")[1]) == plain


def test_n_best_prints_as_many_lines_for_each_text(run: Run) -> None:
    code, out, _ = run("--beam", "5", "--n-best", "5", "--set", "max_new_tokens=2", *TEXTS)
    assert code == 0
    assert len(lines(out)) == 5 * len(TEXTS)
    assert lines(out)[:5] == [""] * 5, "blank in, blank out"
    assert lines(run(stdin=b"")[1] + "\n") == [""]


def test_json_is_strict_and_its_alignment_fits(run: Run) -> None:
    code, out, _ = run("--json", "--n-best", "2", stdin=encoded([*TEXTS, f"{LONG}. {LONG}. {LONG}."]))
    assert code == 0
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines(out)]
    assert [item["source"] for item in found] == [*TEXTS, f"{LONG}. {LONG}. {LONG}."]
    for item in found:
        if item["segments"] == 0:
            assert (item["text"], item["score"], item["tokens"]) == ("", None, [])
        elif item["segments"] == 1:
            alignment = item["alignment"]
            assert alignment["tgt_pieces"] == item["tokens"]
            assert "".join(alignment["src_pieces"][:-1]).strip() in (item["source"].strip(), r"\xe2\x80\x8b")
            assert alignment["src_pieces"][-1] == "</s>"
            assert len(alignment["weights"]) == len(item["tokens"])
            for row in alignment["weights"]:
                assert len(row) == len(alignment["src_pieces"])
                assert sum(row) == pytest.approx(1, abs=1e-5)
            assert len(item["alternatives"]) == 1
            assert item["score"] >= item["alternatives"][0]["score"]
        else:
            assert "alignment" not in item and item["segments"] > 1


def test_attention_and_picture(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    code, out, err = run("we eat bread", "--attention", "--picture", str(picture))
    assert code == 0
    assert len(lines(out)) == 1, "the drawing goes to standard error"
    assert "Cross-attention" in err and "</s>" in err
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert run("a", "--picture", str(tmp_path / "none" / "a.svg"))[0] == 2
    assert run("a", "b", "--picture", str(picture))[0] == 2
    assert "No attention is drawn" in run("", "--attention")[2]


# -- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["--input", "missing.txt"], b"", "missing.txt cannot be read"),
        (["hello", "--input", "-"], b"", "Texts and --input were given"),
        (["hello", "--n-best", "5"], b"", "n_best=5 with beam_size=4"),
        (["hello", "--n-best", "0"], b"", "n_best=0"),
        (["hello", "--beam", "0"], b"", "beam_size=0"),
        (["hello", "--set", "beem_size=3"], b"", "Did you mean 'beam_size'"),
        (["hello", "--set", "alpha=many"], b"", "alpha"),
        (["--strict"], b"fine\n" + LONG.encode() * 9 + b"\n", "The model takes at most 70"),
        ([], b"fine\ncaf\xe9\n", "standard input, line 2: byte 0xE9"),
        (["--encoding", "klingon"], b"x\n", "klingon"),
        (["hello", "--output", "no/such/folder/out.txt"], b"", "out.txt cannot be written"),
        (["caf\udce9"], b"", "is not UTF-8"),
        (["emoji \ud83d"], b"", "half a surrogate pair"),
        (["--unknown"], b"", "--unknown"),
    ],
)
def test_one_clear_message_and_exit_code_2(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], stdin: bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*arguments, stdin=stdin)
    assert code == 2
    assert message in err
    assert err.strip().count("\n") <= 3
    assert list(tmp_path.iterdir()) == []


def test_failed_run_leaves_the_older_output_alone(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("older\n", encoding="utf-8")
    assert run("--output", str(out), stdin=b"fine\ncaf\xe9\n")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    assert out.read_text(encoding="utf-8") == "older\n"


def test_model_that_is_none_or_damaged(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["translate", str(tmp_path), "hello"], monkeypatch) == 2
    assert "is no model folder" in capfd.readouterr().err
    folder = save_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9])
    assert run_cli(["translate", str(folder), "hello"], monkeypatch) == 2
    err = capfd.readouterr().err
    assert "is damaged" in err and "Traceback" not in err


def test_encoding_option(run: Run) -> None:
    assert run("--encoding", "latin-1", stdin="\u00e9t\u00e9\n".encode("latin-1"))[1] == run("\u00e9t\u00e9")[1]


# -- other platforms' defaults ------------------------------------------------------------------------------------


def test_locale_without_utf_8_gives_the_same_bytes(model: Path) -> None:
    text = "d\u00e9j\u00e0 \u4eca\u65e5"
    command = [sys.executable, "-W", "error::EncodingWarning", "-m", "glassformer", "translate", str(model), "--json"]
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONWARNDEFAULTENCODING": "1", "OMP_NUM_THREADS": "1"}
    given = subprocess.run([*command, text], env=plain | locale, capture_output=True, check=True)
    piped = subprocess.run(command, input=f"{text}\n".encode(), env=plain | locale, capture_output=True, check=True)
    assert given.stdout == piped.stdout
    assert given.stderr == piped.stderr == b""
    assert text in given.stdout.decode("utf-8")
    (expected,) = Translator.load(model).translate([text])
    assert json.loads(given.stdout)["text"] == expected.text


def test_settings_of_the_folder_are_the_default(model: Path) -> None:
    assert Translator.load(model).generation == config().generation


def test_workers_give_the_same(run: Run, expected: list[str]) -> None:
    assert lines(run("--workers", "2", stdin=encoded(TEXTS))[1]) == expected
    code, out, err = run("--workers", "2", "--strict", LONG * 20)
    assert (code, out) == (2, "")
    assert "at most" in err
    assert run("--workers", "0", "a")[0] == 2
    code, out, err = run("--workers", "2", "--server", "http://localhost:1", "a")
    assert (code, "--workers" in err) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_told(model: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "glassformer", "translate", str(model), "a"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: The output cannot be written") and "Traceback" not in done.stderr


def test_interrupted_while_workers_begin(model: Path) -> None:
    """Ctrl-C reaches the whole group; those that import still say nothing."""
    command = [sys.executable, "-m", "glassformer", "translate", str(model), "--workers", "2", *map(str, range(400))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and len(children.read_text().split()) < 2:  # torch's tracker and a worker
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b"" and b"Traceback" not in err


def test_a_link_and_a_pipe_stay_what_they_are(run: Run, tmp_path: Path, expected: list[str]) -> None:
    target, link, pipe = tmp_path / "target.txt", tmp_path / "link.txt", tmp_path / "pipe"
    link.symlink_to(target)
    assert run(*TEXTS, "--output", str(link))[0] == 0
    assert link.is_symlink() and lines(target.read_text(encoding="utf-8")) == expected
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        assert run(*TEXTS, "--output", str(pipe))[0] == 0
        assert lines(reader.communicate(timeout=60)[0].decode()) == expected
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.txt", "pipe", "target.txt"]
