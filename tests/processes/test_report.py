"""A real run's page in a real browser: it loads no resources, and the curves are shown."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from support.processes import LAUNCHER, environment, launch, workshop
from support.waiting import LONG

__all__ = ["workshop"]
CHROMIUM = shutil.which("chromium")
MILLISECONDS = LONG * 1000
SCRIPT = """
import os, pathlib, time
rank = os.environ["RANK"]
print({"loss": 2.5, "grad_norm": 1.0, "learning_rate": 0.1, "epoch": 0.1})
print({"loss": 1.5, "grad_norm": 1.0, "learning_rate": 0.1, "epoch": 0.2}, flush=True)
pathlib.Path("printed-" + rank).touch()
while len(list(pathlib.Path().glob("printed-*"))) < 2:
    time.sleep(0.01)
if rank == "1":
    raise RuntimeError("the price of <b>$1 & $2</b> isn't known")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no chromium: scripts/system-packages installs it")
    with sync_playwright() as play:
        yield play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MILLISECONDS
        )


def opened(browser: Browser, path: Path, scheme: str) -> tuple[Page, list[str]]:
    """A page with its external requests and errors."""
    tab = browser.new_page(color_scheme="dark" if scheme == "dark" else "light")
    tab.set_default_timeout(MILLISECONDS)
    odd: list[str] = []
    tab.on("request", lambda request: odd.append(request.url))
    tab.on("console", lambda message: odd.append(message.text))
    tab.on("pageerror", lambda error: odd.append(str(error)))
    tab.goto(path.as_uri())
    return tab, odd


def test_the_page_in_a_browser(workshop: Path, browser: Browser) -> None:
    """Light, dark and in print."""
    (workshop / "train.py").write_text(SCRIPT)
    done = launch(workshop, "--nproc=2", "train.py")
    assert done.returncode == 1
    said = subprocess.run(
        [LAUNCHER, "report", "--log-dir=runs"],
        cwd=workshop,
        env=environment(workshop),
        capture_output=True,
        text=True,
        check=True,
    )
    page = workshop / said.stdout.strip()
    papers = set()
    for scheme in ("light", "dark"):
        tab, odd = opened(browser, page, scheme)
        assert odd == [page.as_uri()]
        assert tab.get_by_text("RuntimeError: the price of <b>$1 & $2</b> isn't known").count()
        assert tab.get_by_text("raise RuntimeError").first.is_visible()
        for figure in ("timeline", "curves"):
            box = tab.locator(f"#{figure} svg").bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) > 50
        assert tab.locator("#curves svg text", has_text="loss").first.is_visible()
        line = tab.locator("#curves svg path[style*='--series-0']").first
        assert line.evaluate("line => getComputedStyle(line).stroke").startswith("rgb")
        papers.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == 2
    assert tab.pdf().startswith(b"%PDF")
