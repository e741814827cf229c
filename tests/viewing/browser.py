"""A headless Chromium for tests of pages: one for all of them, and every request and message of a page is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import chance

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


@dataclass
class Tab:
    """A page that is open. `messages` are the console's and uncaught errors, `requests` what it asked a network for."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path) -> None:
        """Opens a file anew."""
        self.messages.clear()
        self.requests.clear()
        self.page.goto(path.as_uri())

    def run(self, script: str) -> Any:
        """What a script's expression gives in the page."""
        return self.page.evaluate(script)

    def show(self, panel: str) -> None:
        """Opens a panel by its tab."""
        self.page.click(f"#tab-{panel}")

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that `selector` finds."""
        return [text.strip() for text in self.page.locator(selector).all_text_contents()]


@contextmanager
def browser() -> Iterator[Tab]:
    """A tab of a browser of its own; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra `test`)")
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    with ExitStack() as stack:
        with chance.undone():
            driver = stack.enter_context(playwright.sync_playwright())
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        page = started.new_page(viewport={"width": 1300, "height": 900})
        tab = Tab(page)
        page.on("console", lambda message: tab.messages.append(message.text))
        page.on("pageerror", lambda error: tab.messages.append(str(error)))
        page.on("request", lambda request: tab.requests.append(request.url))
        yield tab
        started.close()
