"""Makes the pictures of docs/serve.md with Chromium, as the tests of the page do: playwright and chromium are needed.

    glassformer serve runs/demo bible runs/minilm domains names
    python docs/images/serve.py http://127.0.0.1:5000 [serve-why ...]

The models are the demo, and those of recipes/lm.md, embed.md, classify.md and label.md. Names after the address: only
these pictures. OUT=FOLDER puts them elsewhere.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SENTENCE = "We eat bread in the garden."
LINES = """Refunds are paid within ten days.
Send a parcel back free of charge.
Our shops are open from nine to six.
We are looking for drivers."""


def translation(page: Any) -> None:
    """A sentence and its translation."""
    page.select_option("#source", "en")
    page.select_option("#target", "fr")
    page.fill("#text", SENTENCE)
    page.wait_for_selector("#result .word")
    page.wait_for_selector("#result:not([aria-busy])")


def pointed(page: Any) -> None:
    """A word of the translation under the pointer, and what it looked at."""
    translation(page)
    page.hover("#result .word >> nth=5")


def focused(page: Any) -> None:
    """The same by the keyboard."""
    translation(page)
    page.focus("#result .word >> nth=4")


def report(page: Any) -> None:
    """The report beside a translation."""
    translation(page)
    page.click("#why")
    page.frame_locator("#report-frame").locator("h1").wait_for(timeout=120_000)


def playground(page: Any) -> None:
    """A text that goes on, and what could stand in place of one token."""
    page.click('nav a[href="#generate"]')
    page.fill("#prompt", "Alors Moïse")
    page.locator("#heat").fill("0")
    page.click("#go")
    page.wait_for_selector("#made .token")
    page.hover("#made .token >> nth=18")


def comparison(page: Any) -> None:
    """Texts in the order of their likeness to a question."""
    page.click('nav a[href="#embed"]')
    page.fill("#first", "How do I get my money back?")
    page.fill("#lines", LINES)
    page.wait_for_selector("#likeness li")


def classification(page: Any) -> None:
    """The labels of a text."""
    page.click('nav a[href="#classify"]')
    page.fill("#class-text", "Print the version number and exit.")
    page.wait_for_selector("#classes li")


WIDE = {"viewport": {"width": 1200, "height": 640}, "color_scheme": "light", "locale": "en-GB"}
PHONE = {
    "viewport": {"width": 400, "height": 800},
    "device_scale_factor": 1.5,
    "color_scheme": "dark",
    "locale": "fr-FR",
}
PICTURES: dict[str, tuple[Callable[[Any], None], dict[str, Any]]] = {
    "serve-light": (pointed, WIDE),
    "serve-dark": (focused, PHONE),
    "serve-playground": (playground, WIDE | {"viewport": {"width": 1200, "height": 845}, "color_scheme": "dark"}),
    "serve-compare": (comparison, WIDE | {"viewport": {"width": 900, "height": 560}}),
    "serve-classify": (classification, WIDE | {"viewport": {"width": 900, "height": 675}}),
    "serve-why": (report, WIDE | {"viewport": {"width": 1300, "height": 780}}),
}


def main(url: str, folder: Path, names: list[str]) -> None:
    """Makes the pictures of these names, or all."""
    with sync_playwright() as library:
        browser = library.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for name in names or PICTURES:
            show, options = PICTURES[name]
            page = browser.new_context(**options).new_page()
            page.goto(url)
            page.wait_for_selector("body[data-ready]")
            show(page)
            page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
            page.screenshot(path=folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(os.environ.get("OUT", Path(__file__).parent)), sys.argv[2:])
