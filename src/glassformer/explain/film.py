"""A film of one sentence: the frames that a run recorded while it trained, beside its figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassformer.errors import UserError
from glassformer.explain.result import Array, mean_entropy
from glassformer.explain.tokens import label, visible
from glassformer.tasks.film import FILM
from glassformer.training.progress import RunLog

__all__ = ["Film", "FilmMap", "Frame", "read_film"]


@dataclass(frozen=True, kw_only=True)
class FilmMap:
    """Weights of one attention in one frame. Rows are queries, columns are keys."""

    key: str  # decoder.1.cross
    weights: Array  # [H, T, S]
    queries: list[str]
    keys: list[str]

    @property
    def entropy(self) -> Array:
        """Of each head, in nats: [H]; see `mean_entropy`."""
        return mean_entropy(self.weights)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What the model made of the sentence after an update. Figures are None where that update was not validated."""

    update: int
    output: str
    read: list[str]  # the token before each choice
    chosen: list[str]
    candidates: list[list[tuple[str, float]]]
    maps: list[FilmMap]
    loss: float | None
    bleu: float | None


@dataclass(frozen=True, kw_only=True)
class Film:
    """The frames of a run, the earliest first."""

    run: str
    text: str
    frames: list[Frame]

    def curve(self, figure: str) -> list[tuple[int, float]]:
        """(update, value) of `loss` or `bleu`, where there is one."""
        found = [(frame.update, getattr(frame, figure)) for frame in self.frames]
        return [(update, value) for update, value in found if value is not None]

    def entropies(self) -> dict[str, list[tuple[float, float]]]:
        """Key of each attention -> (update, mean entropy of its heads, in nats)."""
        found: dict[str, list[tuple[float, float]]] = {}
        for frame in self.frames:
            for map_ in frame.maps:
                found.setdefault(map_.key, []).append((frame.update, float(map_.entropy.mean())))
        return found

    def to_html(self) -> str:
        """One page that needs nothing else."""
        from glassformer.explain.render_film import to_html

        return to_html(self)


def read_film(run: str | Path) -> Film:
    """Reads the frames of a run folder, and its figures from log.jsonl.

    Raises:
        UserError: The run has recorded nothing.
    """
    entries = RunLog(Path(run), is_main=False, name=FILM).read()
    if not entries:
        raise UserError(
            f"{run} holds no film: it has no {FILM}.",
            "A run that was told to record a sentence was expected.",
            'Train with --set validation.film="We eat bread.".',
        )
    log = [entry for entry in RunLog(Path(run), is_main=False).read() if entry["event"] == "validation"]
    figures = {entry["update"]: entry for entry in log}
    frames = []
    for entry in entries:
        sides = {"encoder": _shown(entry["src"]), "decoder": _shown(entry["tgt"])}
        figure = figures.get(entry["update"], {})
        maps = [_map(key, np.array(weights), sides) for key, weights in entry["attention"].items()]
        n_chosen = len(entry["candidates"])
        frames.append(
            Frame(
                update=entry["update"],
                output=visible(entry["output"]),
                read=(sides["decoder"] or sides["encoder"])[-n_chosen:] if n_chosen else [],
                chosen=_shown(entry["chosen"]),
                candidates=[[(label(piece), p) for piece, p in best] for best in entry["candidates"]],
                maps=maps,
                loss=figure.get("loss"),
                bleu=figure.get("bleu"),
            )
        )
    return Film(run=str(run), text=entries[0]["text"], frames=frames)


def _map(key: str, weights: Array, sides: dict[str, list[str]]) -> FilmMap:
    side, _, kind = key.split(".")
    return FilmMap(key=key, weights=weights, queries=sides[side], keys=sides["encoder" if kind == "cross" else side])


def _shown(pieces: list[str]) -> list[str]:
    return [label(piece) for piece in pieces]
