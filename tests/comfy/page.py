"""Open ComfyUI's real web page in headless Chromium and run workflows there.

Uses a Chromium that is already installed: playwright downloads nothing.

    with ComfyBrowser(find_chromium(), pictures=True) as browser, browser.open(server) as page:
        report = page.load(json.loads(path.read_text(encoding="utf-8")))   # a UI-format workflow
        assert not report["missing"] and not page.problems()
        page.run()                                                         # queue it and wait until it ends
        page.screenshot(Path("workflow.png"))
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import ConsoleMessage, Error, Page, Response, sync_playwright

from tests.patience import PATIENCE

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

# What a page does takes seconds, also on a busy machine: one that waits for what never comes ends before a person
# takes the run for dead.
PAGE_PATIENCE = PATIENCE / 2  # seconds

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "/usr/bin/chromium")
CHROMIUM_ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--autoplay-policy=no-user-gesture-required",
]  # fmt: skip
# Console errors of a fresh ComfyUI without network and without any pack.
USUAL = (
    "Failed to load resource",
    "Content Security Policy",
    "[Jobs API]",
    "Failed to fetch queue",
    "ComfyApp graph accessed before initialization",  # frontend 1.49.6 says it of its own code
    "reading 'id')\n    at onChange (",  # frontend 1.32.9 stores a setting that it does not define
)

READY = """() => window.app?.graph && window.app.extensionManager && window.LiteGraph
           && document.querySelector('canvas')"""
LOAD = """async (workflow) => {
  await window.app.loadGraphData(workflow)
  const {output, workflow: ui} = await window.app.graphToPrompt()
  const nodes = window.app.graph.nodes ?? window.app.graph._nodes
  return {
    api: output,
    ui: ui,
    missing: nodes.map(n => n.type).filter(t => !(t in window.LiteGraph.registered_node_types)),
    nodes: nodes.map(n => ({id: String(n.id), type: n.type, title: n.title, size: [...n.size],
                            widgets: (n.widgets ?? []).map(w => [w.name, w.type, w.value ?? null])})),
    links: [...(window.app.graph.links?.values?.() ?? Object.values(window.app.graph.links))].length,
    frontend: window.__COMFYUI_FRONTEND_VERSION__,
  }
}"""
WATCH = """() => {
  window.__ended = []
  window.__asking = 0  // requests that the server has not answered yet
  const {api} = window.app
  const fetchApi = api.fetchApi.bind(api)
  api.fetchApi = (...given) => {
    window.__asking++
    return fetchApi(...given).finally(() => { window.__asking-- })
  }
  // "reconnecting": the server has ended
  for (const kind of ['execution_success', 'execution_error', 'execution_interrupted', 'reconnecting'])
    api.addEventListener(kind, (e) => window.__ended.push([kind, e.detail]))
}"""
# Chromium draws each frame of an animation in the processor: those of a running node and of its progress bar took more
# of it than ComfyUI and the speech together.
NO_ANIMATION = """
  const style = new CSSStyleSheet()
  style.replaceSync('*, ::before, ::after { animation: none !important; transition: none !important }')
  document.adoptedStyleSheets.push(style)
"""
FORGET = "() => { localStorage.clear(); sessionStorage.clear() }"
ANSWERED = "() => window.__asking === 0"
QUEUE = "() => { window.app.queuePrompt(0) }"
# What a node says of its failure; else how the run ended, where it did not fail.
OUTCOME = """() => {
  const said = document.querySelector('.morph-failed')?.textContent
  const ended = window.__ended.at(-1)?.[0]
  return (said || (ended && ended !== 'execution_error')) && {said, ended}
}"""
COUNT_NODES = "(count) => document.querySelectorAll('[data-node-id]').length === count"
FIT = "() => window.app.extensionManager.command.execute('Comfy.Canvas.FitView')"
# Whether nothing moves for 30 frames: neither the view nor Nodes 2.0's elements, which follow it.
STILL = """async () => {
  const {ds} = window.app.canvas
  const places = () => [...document.querySelectorAll('[data-node-id]')].map((node) => node.getBoundingClientRect())
  const view = () => JSON.stringify([ds.scale, ds.offset, places()])
  const before = view()
  for (let frame = 0; frame < 30; frame++) {
    await new Promise(requestAnimationFrame)
    if (view() !== before) return false
  }
  return true
}"""


def find_chromium() -> str | None:
    """Return the path of a Chromium: $CHROMIUM, else one of the usual names; None if there is none."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    return next((found for found in map(shutil.which, CHROMIUM_NAMES) if found), None)


class ComfyBrowser:
    """A Chromium process; playwright allows one at a time.

    Tabs are used again: one that has read a server's 24 MB of scripts before opens in half the processor time.
    Its pages take ``pictures`` or none: a person looks at them, and they take processor time.
    """

    def __init__(self, chromium: str, pictures: bool = False):
        self.chromium, self.pictures = chromium, pictures
        self._free: dict[str, list[Page]] = {}  # by the server's address

    def __enter__(self) -> ComfyBrowser:
        self._playwright = sync_playwright().start()
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=self.chromium, headless=True, args=CHROMIUM_ARGS, timeout=1000 * PATIENCE
            )
        except BaseException:
            self._playwright.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()

    def open(self, server: ComfyServer, nodes_2: bool = False, width: int = 1600, height: int = 900) -> ComfyPage:
        """Open the server's page in a context without memory, with the classic canvas or with Nodes 2.0."""
        server.set_page_setting("Comfy.VueNodes.Enabled", nodes_2)
        free = self._free.setdefault(server.url, [])
        page = free.pop() if free else self._new_page()
        page.set_viewport_size({"width": width, "height": height})
        return ComfyPage(page, server.url, free, self.pictures)

    def _new_page(self) -> Page:
        context = self._browser.new_context()
        context.set_default_timeout(1000 * PAGE_PATIENCE)
        context.add_init_script(NO_ANIMATION)
        return context.new_page()


class ComfyPage:
    """A tab with ComfyUI's page. ``page`` is playwright's own object, for what the methods here do not cover.

    Args:
        page: an empty tab.
        url: the server's address.
        free: takes the tab when it is closed; None, or ``keeps_scripts``: it is closed for good.
        pictures: whether ``screenshot`` takes one.
    """

    def __init__(self, page: Page, url: str, free: list[Page] | None = None, pictures: bool = False):
        self.page, self.url, self._free, self.pictures = page, url, free, pictures
        self.keeps_scripts = False  # set it after add_init_script, which cannot be taken back
        self.errors: list[str] = []
        self.refused: list[str] = []  # "status url" of each response with status 400 or above
        self._listeners = {
            "pageerror": lambda error: self.errors.append(f"pageerror: {error}"),
            "console": self._note_console,
            "response": self._note_response,
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)  # type: ignore[call-overload]
        page.goto(url)
        page.wait_for_function(READY)
        page.wait_for_load_state("networkidle")
        page.evaluate(WATCH)

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"console: {message.text}")

    def _note_response(self, response: Response) -> None:
        if response.status >= 400:
            self.refused.append(f"{response.status} {response.url}")

    def __enter__(self) -> ComfyPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the tab and its context, or empty it for the next test."""
        page = self.page
        if self._free is None or self.keeps_scripts or page.is_closed():
            page.context.close()
            return
        for event, listener in self._listeners.items():
            page.remove_listener(event, listener)
        page.unroute_all()
        try:
            page.goto(f"{self.url}/system_stats")  # of the same origin, and no page of ComfyUI's
        except Error:  # the server has been stopped
            page.context.close()
            return
        page.evaluate(FORGET)
        self._free.append(page)

    def load(self, workflow: dict[str, Any]) -> dict[str, Any]:
        """Load a UI-format workflow.

        Returns a dict with api (the graph that Run would queue), ui (the workflow that Save would write), missing
        (node types unknown to the page), nodes, links (their number) and frontend (its version).
        """
        # Unlike evaluate, this has a time limit.
        report = self.page.wait_for_function(LOAD, arg=workflow).json_value()
        self.settle()
        return report

    def run(self) -> tuple[str, Any]:
        """Queue the loaded workflow as Run does; return its last event, (type, data), once its nodes show it."""
        before = self.page.evaluate("() => window.__ended.length")
        posted = self._queue()
        if not posted.ok:
            raise RuntimeError(f"the server refused the workflow: {posted.text()}")
        self.page.wait_for_function("(n) => window.__ended.length > n", arg=before)
        self.page.wait_for_function(ANSWERED)  # nodes show their results once it is known whose the run was
        self.settle()
        kind, data = self.page.evaluate("() => window.__ended.at(-1)")
        return kind, data

    def fail(self) -> str:
        """Queue the workflow, which was just loaded, as Run does; return the sentence with which it fails.

        A node says it, and so does a message of the page. The message goes after 20 seconds: nothing is waited for
        before it.
        """
        self.page.evaluate("() => { window.__ended = [] }")
        self._queue()
        outcome = self.page.wait_for_function(OUTCOME).json_value()
        said: str | None = outcome.get("said")
        if said is None:
            raise RuntimeError(f"the run should fail with a sentence on its node: {outcome['ended']}")
        self.page.get_by_text(said).and_(self.page.locator(":visible:not(.morph-failed)")).first.wait_for()
        return said

    def _queue(self) -> Response:
        with self.page.expect_response(is_prompt) as posted:
            self.page.evaluate(QUEUE)
        return posted.value

    def wait_for_vue_nodes(self, count: int) -> None:
        """Wait until this many nodes are drawn as page elements: none on the classic canvas, all with Nodes 2.0."""
        self.page.wait_for_function(COUNT_NODES, arg=count)

    def settle(self) -> None:
        """Wait until the page has drawn what it was given."""
        self.page.wait_for_function(STILL)

    def fit(self) -> None:
        """Zoom so that the complete graph is visible, and wait until it is drawn so."""
        self.page.evaluate(FIT)
        self.settle()

    def problems(self) -> list[str]:
        """Return the page's errors, without those that every fresh ComfyUI reports."""
        return [error for error in self.errors if not any(usual in error for usual in USUAL)]

    def screenshot(self, path: Path) -> None:
        """Write a PNG of the visible part of the page, if pictures are wanted."""
        if self.pictures:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=path)


def is_prompt(response: Response) -> bool:
    """Return whether this is the response to queueing a workflow."""
    return response.url.endswith("/api/prompt") and response.request.method == "POST"
