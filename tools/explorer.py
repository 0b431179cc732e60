"""A small picture of the explorer page: `python tools/explorer.py http://127.0.0.1:8000 docs/explorer.png`.

The server is one of a run on `world`, by `compgcn serve RUN`. Needs Chromium, and the extras `browser` and `plot`.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

QUESTION = "#/ask?head=Kenya&relation=borders&answer=South Sudan"  # a fact of test: the model has not seen it
SIZE = {"width": 1180, "height": 900}
COLOURS = 128  # a flat design loses nothing by a palette


def picture(address: str, question: str = QUESTION) -> bytes:
    """The page with a question answered and an answer explained, as a PNG."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto(f"{address}/{question}")
        page.locator(".why .graph svg").wait_for()
        page.locator(".answers .ranked").wait_for()
        taken = page.locator("body").screenshot()
        browser.close()
    return taken


def main(address: str, file: str) -> None:
    image = Image.open(io.BytesIO(picture(address))).convert("RGB")
    image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file}: {image.width} × {image.height}, {Path(file).stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:3])
