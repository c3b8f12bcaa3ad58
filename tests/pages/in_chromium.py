"""Open every built page in headless Chromium, wide and narrow, light and dark: `make pages`.

A page passes if it writes no error to the console, asks for nothing outside the book, does not
scroll sideways, shows each figure in the version of the theme at hand, and has a figure's text
large enough. Pictures of the pages go to book/_build/pictures with `--pictures`. Without Chromium
the check is skipped, and says so.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import websocket
from tqdm import tqdm

HTML = Path(__file__).resolve().parents[2] / "book" / "_build" / "html"
WIDTHS = {"wide": 1400, "narrow": 390}
PROBE = """(() => {
  const seen = (e) => getComputedStyle(e).display !== 'none';
  return {
    theme: document.documentElement.dataset.theme,
    overflow: document.documentElement.scrollWidth - window.innerWidth,
    figures: [...document.querySelectorAll('.cde-figure')].map(
      (f) => [...f.querySelectorAll('img')].filter(seen).map((i) => i.className)),
    broken: [...document.images].filter((i) => seen(i) && i.complete && !i.naturalWidth).map((i) => i.alt),
  };
})()"""


class Browser:
    """A headless Chromium that is spoken to by the DevTools protocol."""

    def __init__(self, program: str, profile: str) -> None:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--remote-debugging-port=0",
            "--remote-allow-origins=*",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        self.process = subprocess.Popen([program, *flags], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"DevTools listening on (ws://\S+)", line):
                break
        else:
            raise RuntimeError("Chromium ended before it could be spoken to")
        self.socket = websocket.create_connection(found[1], timeout=60)
        self.number = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self.number)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, address: str, width: int, dark: bool) -> dict[str, Any]:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=1000,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(json.loads(self.socket.recv()))
        return self.call("Runtime.evaluate", expression=PROBE, returnByValue=True)["result"][
            "value"
        ]

    def complaints(self) -> list[str]:
        found = []
        for event in self.events:
            method, what = event.get("method"), event.get("params", {})
            if method == "Log.entryAdded" and what["entry"]["level"] == "error":
                found.append(f"console: {what['entry']['text']} {what['entry'].get('url', '')}")
            if method == "Runtime.consoleAPICalled" and what["type"] == "error":
                found.append(f"console: {what['args'][0].get('value', '')}")
            if method == "Runtime.exceptionThrown":
                detail = what["exceptionDetails"]
                found.append(
                    f"exception: {detail.get('exception', {}).get('description', detail['text'])}"
                )
            if method == "Network.requestWillBeSent" and not what["request"]["url"].startswith(
                ("file:", "data:", "blob:")
            ):
                found.append(f"asks for {what['request']['url']}")
        return found

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # a window as tall as the page: beyond a small one Chromium lays tall pages out anew, and
        # wrongly
        height = "[window.innerWidth, document.documentElement.scrollHeight]"
        width, height = self.call("Runtime.evaluate", expression=height, returnByValue=True)[
            "result"
        ]["value"]
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        taken = self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(taken["data"]))

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", action="store_true", help="keep a picture of each page")
    options = parser.parse_args()
    program = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if program is None:
        print(
            "SKIPPED: no Chromium on this machine (Debian: apt-get install chromium); pages not "
            "opened"
        )
        return 0
    pages = [page for page in sorted(HTML.rglob("*.html")) if "_static" not in page.parts]
    # the first page is a mere redirection to the introduction, which is opened itself
    pages = [
        page for page in pages if 'http-equiv="Refresh"' not in page.read_text(encoding="utf-8")
    ]
    if not pages:
        print("no pages: run `make book` first", file=sys.stderr)
        return 1
    problems = []
    # Chromium may still be writing to its profile when it is told to end
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            views = list(itertools.product(pages, WIDTHS.items(), ("light", "dark")))
            for page, (name, width), theme in tqdm(views, desc="pages in Chromium", mininterval=10):
                where = f"{page.relative_to(HTML)} ({name}, {theme})"
                seen = browser.open(page.as_uri(), width, theme == "dark")
                problems += [f"{where}: {complaint}" for complaint in browser.complaints()]
                if seen["theme"] != theme:
                    problems.append(f"{where}: shows the theme {seen['theme']}")
                if seen["overflow"] > 0:
                    problems.append(f"{where}: is {seen['overflow']} pixels wider than the screen")
                problems += [f"{where}: broken image {alt!r}" for alt in seen["broken"]]
                for shown in seen["figures"]:
                    if len(shown) != 1 or f"cde-{theme}" not in shown[0]:
                        problems.append(f"{where}: a figure shows {shown or 'no image'}")
                if options.pictures:
                    relative = page.relative_to(HTML).with_suffix("")
                    browser.picture(
                        HTML.parent / "pictures" / f"{'-'.join(relative.parts)}-{name}-{theme}.png"
                    )
        finally:
            browser.close()
    print(
        "\n".join(problems)
        or f"{len(pages)} pages are fit to be read: {len(views)} views without a complaint"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
