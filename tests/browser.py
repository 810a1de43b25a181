"""Pages in headless Chromium, spoken to over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--remote-debugging-pipe", "about:blank",
)  # fmt: skip


def browser() -> str | None:
    """The program, if there is one."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Page:
    """A page that is open.

    Attributes:
        events: what the browser has told of it so far: method and parameters of each.
    """

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._selector = selectors.DefaultSelector()
        self._selector.register(answers, selectors.EVENT_READ)
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Network", "Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask for something and wait for the answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != number:
            self.events.append((answer.get("method", ""), answer.get("params", {})))
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path) -> None:
        """Go to a file and wait until it is loaded; forget the events before."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in [method for method, _ in self.events]:
            answer = self._message()
            self.events.append((answer.get("method", ""), answer.get("params", {})))

    def look(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Have a window of this size, and a light or a dark system."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def value_of(self, script: str) -> Any:
        """What a line of JavaScript gives; the page's own policy does not concern it."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"]
        return result.get("value")

    def picture(self) -> bytes:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _message(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            assert self._selector.select(max(deadline - time.monotonic(), 0)), "no answer"
            more = os.read(self._answers, 2**20)
            assert more, "the browser has ended"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        value: dict[str, Any] = json.loads(message)
        return value

    def close(self) -> None:
        """Let go of the pipes."""
        self._selector.close()
        for descriptor in (self._requests, self._answers):
            os.close(descriptor)


@contextlib.contextmanager
def opened(program: str, folder: Path) -> Iterator[Page]:
    """Start a browser with a fresh profile in ``folder``; it ends with the block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # The browser reads from descriptor 3 and writes to 4.
    script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    command = ["bash", "-c", script, "-", program, f"--user-data-dir={folder}", *_OPTIONS]
    process = subprocess.Popen(
        command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    page = None
    try:
        page = Page(ours_out, ours_in)
        yield page
    finally:
        if page is not None:
            page.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(PATIENCE_S)
