"""The command line: one file per command, heavy imports inside the command."""

from __future__ import annotations

import difflib
import errno
import gc
import importlib
import keyword
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from glassformer import __version__
from glassformer.errors import GlassformerError

# Command -> what it does. The command `x` is the function `command` of `glassformer.cli.x` (`x_` for a Python keyword;
# a dash is an underscore there).
COMMANDS = {
    "check": "Report on parallel data: counts, lengths, and what looks wrong.",
    "classify": "Label each line of a text, a file or standard input.",
    "embed": "One vector for each line of text.",
    "evaluate": "Score a model: BLEU, chrF, TER, by length and domain; compare two models.",
    "explain": "Every step of a model's own computation on a text, with its proof.",
    "export": "Write a model for transformers, CTranslate2 or onnxruntime.",
    "film": "What a model made of one sentence while it was trained, as a page with a slider.",
    "generate": "Continue a text with a decoder-only model, as it is written or many at once.",
    "import": "Read a Hugging Face folder: weights, tokenizer and settings.",
    "index": "Embed the lines of a file into an index that can be searched.",
    "info": "Parameters, FLOPs, memory and the shape of each step.",
    "label": "Label the words of each line, and show the entities.",
    "masks": "The masks as the kernel gets them, and a test that nothing leaks.",
    "paper-diff": 'Each choice of a model against "Attention Is All You Need".',
    "parity": "Prove that every way to run a model computes the same; a gate for CI.",
    "perplexity": "How well a decoder-only model predicts texts: per token, word and byte.",
    "phrasebook": "Write the embedded English-French phrasebook.",
    "quiz": "Hide shapes and values of a model's own computation, and mark the answers.",
    "search": "Find the lines of an index that are nearest to a query.",
    "serve": "Serve models over HTTP, as LibreTranslate, DeepL and OpenAI do.",
    "train": "Train a model from pairs of sentences.",
    "translate": "Translate a text, a file or standard input.",
}


precision_option = click.option(
    "--precision",
    type=click.Choice(["float32", "bf16", "int8"]),
    default="float32",
    help="What the model computes in; int8: its weights, for x86 CPUs.",
)

workers_option = click.option(
    "--workers",
    "n_workers",
    type=click.IntRange(1, 1024),
    default=1,
    metavar="N",
    help="Processes that share many texts, each with the model and one thread; faster than threads.",
)


@contextmanager
def first_import() -> Iterator[None]:
    """Imports without garbage collection: what they make stays, and a seventh of their time is saved."""
    if "torch" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # nor is it looked through later
        gc.enable()


STDOUT = Path("-")  # in place of a file


def write_file(path: Path, text: str, title: str) -> None:
    """Writes a file and says so on standard error; or writes to standard output."""
    if path == STDOUT:
        click.echo(text, nl=False)
        return
    path.write_text(text, encoding="utf-8")
    click.echo(f"{title}: {path}", err=True)


def printable(text: str) -> str:
    """The text with each character that steers a terminal, such as an escape sequence's first, as Python writes it."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]


def _is_out_of_memory(error: Exception) -> bool:
    """Python's own error, or one of torch, whose CPU allocator has no class of its own."""
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


class LazyGroup(click.Group):
    """Imports a command's module when it is run, so that `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
        command: click.Command = importlib.import_module(f"glassformer.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        if name not in COMMANDS and near:
            ctx.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="glassformer")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Train a Transformer on your own pairs of sentences, see through it, and translate with it."""


def main() -> None:
    """Runs the command line; a user's error exits with 2, a failure with 1, Ctrl-C with 130."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    is_debug = "--debug" in sys.argv
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.exceptions.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except GlassformerError as error:
        if is_debug:
            raise
        click.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if is_debug or error.errno != errno.ENOSPC:
            raise
        click.echo("error: The output cannot be written: no space is left. Make room, or write elsewhere.", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of the output would fail again at the end
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if is_debug or not _is_out_of_memory(error):
            raise
        click.echo(
            "error: There is not enough memory. What was asked for must fit into it at once. "
            "Use a smaller batch (data.batch_tokens), beam, text or model.",
            err=True,
        )
        sys.exit(1)
