"""The scripts of the pages are all checked, against the elements and the modules that there are."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pack
from tests import runner

HERE = Path(__file__).resolve().parent / "javascript"
PAGE = pack.ROOT / "serve" / "page"
TAGS = {
    "form": "HTMLFormElement",
    "canvas": "HTMLCanvasElement",
    "textarea": "HTMLTextAreaElement",
    "select": "HTMLSelectElement",
    "input": "HTMLInputElement",
    "button": "HTMLButtonElement",
    "meter": "HTMLMeterElement",
}


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if name := dict(attrs).get("id"):
            self.tags[name] = tag


def page_tags() -> dict[str, str]:
    return Elements((PAGE / "index.html").read_text(encoding="utf-8")).tags


def test_every_script_is_checked() -> None:
    """tsc reads these two folders (tsconfig.json), and oxlint all that is in ``runner.SCRIPTS``."""
    folders = {path.parent for name in runner.TYPED for path in (pack.ROOT / name).rglob("*.js")}
    folders |= {path.parent for path in (pack.ROOT / "web").rglob("*.js")}
    read = re.findall(r'"\.\./\.\./([\w/]+)/\*\.js"', (HERE / "tsconfig.json").read_text(encoding="utf-8"))
    assert {folder.relative_to(pack.ROOT).as_posix() for folder in folders} == set(read)
    assert all(name.startswith(runner.SCRIPTS) for name in read)


def test_the_types_of_the_pages_elements_are_those_of_the_page() -> None:
    typed = dict(re.findall(r'^  "?([\w-]+)"?: (\w+)$', (HERE / "page.d.ts").read_text(encoding="utf-8"), re.M))
    tags = page_tags()
    assert typed and typed.items() <= {name: TAGS.get(tag, "") for name, tag in tags.items()}.items()


def test_the_page_has_every_element_that_its_scripts_name() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGE.glob("*.js"))
    named = set(re.findall(r'\bat\("([\w-]+)"\)', text))
    assert len(named) > 30 and named <= set(page_tags())


def test_what_checks_the_scripts_is_locked_and_names_no_index() -> None:
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    locked = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all("integrity" in one and "resolved" not in one for name, one in locked.items() if name)
