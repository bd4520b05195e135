"""A film as one page: a slider over the frames; without scripts they stand below each other."""

from __future__ import annotations

from typing import Any

from glassformer.explain import pictures
from glassformer.explain.film import Film, FilmMap, Frame
from glassformer.explain.render_html import environment

__all__ = ["to_html"]


def to_html(film: Film) -> str:
    """The page."""
    curves = [("loss", "Validation loss, nats per token"), ("bleu", "BLEU")]
    return (
        environment()
        .get_template("film.html")
        .render(
            film=film,
            curves=[
                pictures.curve(film.curve(name), title=title, name=name) for name, title in curves if film.curve(name)
            ],
            frames=[{"frame": frame, "maps": [_map(map_, frame) for map_ in frame.maps]} for frame in film.frames],
        )
    )


def _map(map_: FilmMap, frame: Frame) -> dict[str, Any]:
    """All heads small, and their mean large."""
    title = f"update {frame.update}, {map_.key}"
    large = f"{map_.key}.{frame.update}"
    return {
        "key": map_.key,
        "id": large,
        "entropy": map_.entropy.tolist(),
        "mean": pictures.matrix(
            map_.weights.mean(0),
            map_.queries,
            map_.keys,
            title=f"{title}, mean of the heads: rows queries, columns keys",
        ),
        "thumbs": [
            pictures.thumbnail(head, title=f"{title}, head {h}: rows queries, columns keys", href=large)
            for h, head in enumerate(map_.weights, start=1)
        ],
    }
