"""The rules of the whole package: who may import whom, what stays out of a fast start, what is never called."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import glassformer

ROOT = Path(glassformer.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# A part may import itself and parts of a lower rank.
RANKS = {
    "__init__": 0,
    "errors": 0,
    "allocator": 0,
    "processes": 0,
    "shapes": 0,
    "config": 0,
    "presets": 0,
    "resolve": 0,
    "svg": 0,
    "model": 1,
    "text": 1,
    "phrasebook": 1,
    "data": 2,
    "training": 3,
    "generation": 3,
    "evaluation": 4,
    "tasks": 5,
    "explain": 6,
    "interop": 6,
    "serve": 7,
    "cli": 8,
    "__main__": 9,
}
# Inside rank 0, in this order; each imports earlier ones only.
FOUNDATION = ("__init__", "errors", "config", "shapes", "presets", "resolve", "svg")


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all modules that the code imports, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_parts(tree: ast.AST) -> set[str]:
    names = [name.split(".") for name in imported(tree) if name.split(".")[0] == "glassformer"]
    return {name[1] if len(name) > 1 and name[1] in RANKS else "__init__" for name in names}


def may_import(part: str, other: str) -> bool:
    if part == other:
        return True
    if RANKS[part] == RANKS[other] == 0:
        return FOUNDATION.index(other) < FOUNDATION.index(part)
    return RANKS[other] < RANKS[part]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_part_imports_only_parts_below_it(path: Path) -> None:
    part = part_of(path)
    assert part in RANKS, f"{part} has no place in the import order yet: add it to RANKS"
    wrong = {other for other in imported_parts(tree_of(path)) if not may_import(part, other)}
    assert not wrong, f"{part} imports {sorted(wrong)}"


@pytest.mark.parametrize(
    ("part", "code", "is_right"),
    [
        ("model", "from glassformer.config import ModelConfig", True),
        ("model", "from glassformer.data.batches import Batch", False),
        ("model", "from glassformer import training", False),
        ("text", "def f():\n    import glassformer.model.norm", False),
        ("config", "from glassformer.presets import PRESETS", False),
        ("evaluation", "from glassformer.tasks.translator import Translator", False),
    ],
)
def test_the_rule_itself_sees_a_wrong_import(part: str, code: str, is_right: bool) -> None:
    assert all(may_import(part, other) for other in imported_parts(ast.parse(code))) is is_right


@pytest.mark.parametrize("part", ["text", "phrasebook", "shapes", "config", "presets", "resolve", "errors", "svg"])
def test_parts_that_never_import_torch(part: str) -> None:
    for path in MODULES:
        if part_of(path) == part:
            wrong = [name for name in imported(tree_of(path)) if name.split(".")[0] in ("torch", "safetensors")]
            assert not wrong, f"{path} imports {wrong}"


def test_model_imports_torch_and_nothing_else_from_outside() -> None:
    allowed = {"torch", "glassformer", "__future__"} | set(sys.stdlib_module_names)
    for path in MODULES:
        if part_of(path) == "model":
            assert {name.split(".")[0] for name in imported(tree_of(path))} <= allowed, path


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_no_heavy_library(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from glassformer.cli import main\n"
        f"sys.argv = ['glassformer', *{arguments!r}]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'torch', 'numpy', 'tokenizers', 'sacrebleu', 'safetensors', 'rich'} & set(sys.modules)\n"
        "    print('heavy:', sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []", done.stdout


def unsafe_calls(tree: ast.AST) -> Iterator[str]:
    """Calls that can run code from a file, or code from a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (name for name in modules if name.split(".")[0] in {"pickle", "dill", "shelve", "marshal"})
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        is_unsafe_load = name == "torch.load" and options.get("weights_only") != "True"
        is_unsafe_array = name in {"np.load", "numpy.load"} and options.get("allow_pickle", "False") != "False"
        is_shell = options.get("shell", "False") != "False"
        if name in {"eval", "exec", "yaml.load", "os.system"} or is_unsafe_load or is_unsafe_array or is_shell:
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled_or_evaluated(path: Path) -> None:
    assert list(unsafe_calls(tree_of(path))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
        "yaml.load(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_search_for_unsafe_calls_finds_them(code: str) -> None:
    assert list(unsafe_calls(ast.parse(code)))


def test_the_search_for_unsafe_calls_lets_safe_ones_pass() -> None:
    safe = "torch.load(path, weights_only=True)\nnp.load(path, mmap_mode='r')\nmodel.eval()\nyaml.safe_load(text)"
    assert list(unsafe_calls(ast.parse(safe))) == []
