"""The process that makes one report: a JSON object on standard input, HTML on standard output."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from glassformer.errors import UserError
from glassformer.explain import explain
from glassformer.serve.reports import REFUSED
from glassformer.tasks.model_folder import load_model_folder


def main() -> int:
    """Explains `text` with the model `name` in `folder`; where it cannot, says why and returns REFUSED."""
    os.nice(5)  # the models that serve go first
    request = json.load(sys.stdin)
    folder = load_model_folder(request["folder"])
    shown = replace(folder, path=Path(request["name"]))  # the page names the model, not its place on this machine
    try:
        explanation = explain(shown, request["text"], reference=request["reference"])
    except UserError as error:
        sys.stderr.write(str(error))
        return REFUSED
    sys.stdout.buffer.write(explanation.to_html().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
