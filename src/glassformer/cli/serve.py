"""`glassformer serve`: models behind the protocols of LibreTranslate, DeepL and OpenAI."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

import click

from glassformer.config import ServeConfig, field_comments
from glassformer.errors import UserError


def settings(function: Callable[..., None]) -> Callable[..., None]:
    """A flag and an environment variable for each field of ServeConfig."""
    hints = typing.get_type_hints(ServeConfig)
    for field in reversed(dataclasses.fields(ServeConfig)):
        hint = hints[field.name]
        is_list = typing.get_origin(hint) is tuple
        kind: Any = str
        if typing.get_origin(hint) is typing.Literal:
            kind = click.Choice(typing.get_args(hint))
        elif not is_list:
            kind = next(kind for kind in (int, float, str) if hint is kind or kind in typing.get_args(hint))
        function = click.option(
            f"--{field.name.replace('_', '-')}",
            type=kind,
            envvar=f"GLASSFORMER_{field.name.upper()}",
            help=f"{field_comments(ServeConfig)[field.name]}{_default(field.default)}",
            metavar="A,B" if is_list else None,
        )(function)
    return function


def _default(value: Any) -> str:
    return "" if value in (None, ()) else f" [{value}]"


@click.command("serve")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@settings
def command(models: tuple[str, ...], **given: Any) -> None:
    """Serve the models in the folders MODEL (or NAME=FOLDER) over HTTP.

    Every flag is also an environment variable: GLASSFORMER_PORT for --port.
    """
    try:
        from glassformer.serve.server import serve
        from glassformer.serve.workers import supervise
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is not installed.", "Serving needs more packages.", "pip install glassformer[serve]"
        ) from None
    from glassformer.serve.models import names_of

    hints = typing.get_type_hints(ServeConfig)
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if typing.get_origin(hints[name]) is tuple:
            values[name] = tuple(part.strip() for part in value.split(",") if part.strip())
    config = ServeConfig(**values)
    folders = names_of(models)
    click.echo(f"Serving {', '.join(folders)} on http://{config.host}:{config.port}", err=True)
    if config.workers:
        raise SystemExit(supervise(config, folders))
    serve(config, folders)
