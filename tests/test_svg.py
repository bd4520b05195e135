"""Pictures are well-formed, place data where the axes say, and leave nothing out silently."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.svg import heatmap, histogram, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in parsed(picture).iter(f"{SVG}text")]


def corners(path: ET.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+),([\d.-]+)", path.attrib["d"])]


def shapes(picture: str, kind: str) -> list[ET.Element]:
    return [e for e in parsed(picture).iter() if kind in e.attrib.get("class", "").split()]


def y_ticks(picture: str) -> dict[float, float]:
    """Value of a horizontal grid line -> its height in the picture, from the labels beside the lines."""
    heights = {round(corners(e)[0][1] + 4, 1) for e in shapes(picture, "grid")}
    labels = [e for e in parsed(picture).iter(f"{SVG}text") if e.attrib.get("text-anchor") == "end"]
    ticks = {float((e.text or "").replace(",", "")): float(e.attrib["y"]) - 4 for e in labels}
    assert {round(y + 4, 1) for y in ticks.values()} == heights
    return ticks


def one_of_each(text: str) -> list[str]:
    return [
        histogram({text: [1, 2, 2]}, title=text, x_label=text, y_label=text),
        line_chart({text: [(0, 1), (1, 2)]}, title=text, x_label=text, y_label=text),
        heatmap([[0.5]], rows=[text], columns=[text], title=text, row_label=text, column_label=text),
    ]


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(blacklist_categories=()), max_size=30))
def test_any_text_gives_well_formed_pictures(text: str) -> None:
    for picture in one_of_each(text):
        parsed(picture.encode("utf-8").decode("utf-8"))


def test_markup_in_a_text_stays_text() -> None:
    for picture in one_of_each("<script>&\"'\x00\x1b"):
        assert "<script>&\"'␀␛" in texts(picture)
        assert not list(parsed(picture).iter(f"{SVG}script"))


def test_pictures_are_self_contained_accessible_and_have_a_dark_side() -> None:
    for picture in one_of_each("Title"):
        root = parsed(picture)
        assert root.attrib["role"] == "img" and root.attrib["aria-label"] == "Title"
        assert root[0].tag == f"{SVG}title" and root[0].text == "Title"
        assert "prefers-color-scheme:dark" in picture
        assert re.findall(r"https?://[^\"]*", picture) == ["http://www.w3.org/2000/svg"]


def test_histogram_heights_are_the_counts() -> None:
    picture = histogram({"en": [1, 1, 1, 2, 4]}, title="t", x_label="words")
    ticks = y_ticks(picture)
    per_row = (ticks[0] - ticks[3]) / 3
    tops = [y for _, y in corners(shapes(picture, "area")[0])][1:-1:2]
    assert [round((ticks[0] - y) / per_row) for y in tops] == [3, 1, 0, 1]
    assert {"words", "rows", "en"} <= set(texts(picture))


def test_histogram_says_so_when_the_last_bar_holds_the_tail() -> None:
    picture = histogram({"en": [*range(1, 101), 100_000]}, title="t", x_label="words")
    (label,) = [text for text in texts(picture) if text.startswith("words")]
    assert label == "words; the last bar holds all from 100 up"
    assert not any("last bar" in text for text in texts(histogram({"en": range(100)}, title="t", x_label="words")))
    n_bins = 34  # values 1 to 100 in bins of three
    counts = len(corners(shapes(picture, "area")[0])) // 2 - 1
    assert counts == n_bins


@pytest.mark.parametrize("values", [[], [5], [5, 5], [0.1, 0.2], [math.nan, math.inf, 3], [-3, 2], [0, 1e12]])
def test_histogram_of_few_or_odd_values(values: list[float]) -> None:
    parsed(histogram({"a": values, "b": []}, title="t", x_label="x"))
    parsed(histogram({}, title="t", x_label="x"))


def test_line_chart_places_points_by_its_own_axes() -> None:
    picture = line_chart({"loss": [(0, 0), (50, 3), (100, 6)]}, title="t", x_label="x", y_label="y")
    (line,) = shapes(picture, "line")
    ticks = y_ticks(picture)
    slope = (ticks[0] - ticks[6]) / 6
    assert [round((ticks[0] - y) / slope, 1) for _, y in corners(line)] == [0, 3, 6]
    xs = [x for x, _ in corners(line)]
    assert xs[1] == pytest.approx((xs[0] + xs[2]) / 2)


def test_line_chart_with_equal_factors() -> None:
    picture = line_chart({"a": [(0, 1), (1, 10), (2, 100)]}, title="t", x_label="x", y_label="y", log_y=True)
    ys = [y for _, y in corners(shapes(picture, "line")[0])]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.11)  # places have one decimal


def test_line_chart_leaves_out_what_has_no_place() -> None:
    points: list[tuple[float, float]] = [(0, 2.0), (1, math.nan), (2, math.inf), (3, 4.0), (4, -1.0), (5, 0.0)]
    plain = line_chart({"a": points}, title="t", x_label="x", y_label="y")
    log = line_chart({"a": points}, title="t", x_label="x", y_label="y", log_y=True)
    assert len(corners(shapes(plain, "line")[0])) == 4
    assert len(corners(shapes(log, "line")[0])) == 2


@pytest.mark.parametrize("log_y", [False, True])
@pytest.mark.parametrize(
    "points", [[], [(3, 5)], [(3, 5), (4, 5)], [(0, 1e-9), (1, 1e9)], [(0, 9.99), (1, 10.01)], [(0, 1e300), (1, 1)]]
)
def test_line_chart_of_few_or_odd_points(points: list[tuple[float, float]], log_y: bool) -> None:
    picture = line_chart({"a": points}, title="t", x_label="x", y_label="y", log_y=log_y)
    ticks = y_ticks(picture)
    assert 2 <= len(ticks) <= 12
    for _, y in points:
        assert min(ticks) <= y <= max(ticks)


def test_heatmap_fills_cells_by_value_and_tells_it_in_the_tooltip() -> None:
    picture = heatmap([[0, 0.25], [0.5, -math.inf]], rows=["nous", "pain"], columns=["we", "eat"], title="t")
    cells = shapes(picture, "cell")
    assert [float(cell.attrib["fill-opacity"]) for cell in cells] == [0, 0.5, 1, 0]
    assert cells[1][0].text == "query nous, key eat: 0.25" and cells[3][0].text == "query pain, key eat: -inf"
    xs, ys = ([float(cell.attrib[axis]) for cell in cells] for axis in "xy")
    assert xs[0] == xs[2] < xs[1] == xs[3] and ys[0] == ys[1] < ys[2] == ys[3]
    assert {"nous", "pain", "we", "eat", "key across, query down; empty 0, full 0.5"} <= set(texts(picture))


def test_heatmap_with_negative_values_and_without_any() -> None:
    cells = shapes(heatmap([[-1, 1]], rows=["a"], columns=["b", "c"], title="t"), "cell")
    assert [float(cell.attrib["fill-opacity"]) for cell in cells] == [0, 1]
    parsed(heatmap([], rows=[], columns=[], title="t"))
    parsed(heatmap([[math.nan]], rows=["a"], columns=["b"], title="t"))


def test_heatmap_refuses_labels_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        heatmap([[1, 2]], rows=["a"], columns=["b", "c", "d"], title="t")
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        heatmap([[1], [2]], rows=["a"], columns=["b"], title="t")


def test_a_long_label_is_shortened_and_whole_in_the_tooltip() -> None:
    picture = heatmap([[1]], rows=["x" * 99], columns=["b"], title="t")
    assert "x" * 23 + "…" in texts(picture)
    assert "x" * 99 in (shapes(picture, "cell")[0][0].text or "")
