"""Which versions were tested: what is newer is said in one line, and errors name both."""

import pytest
from qwen3_tts_morph.morph import tested

KNOWN = {"transformers": ["4.57.3", "5.24.0"], "torch": ["2.13.0"], "ComfyUI": ["0.3.75", "0.33.0"]}


@pytest.fixture
def here(monkeypatch):
    """The versions that are installed, by name."""
    found = {}
    monkeypatch.setattr(tested, "tested", lambda: KNOWN)
    monkeypatch.setattr(tested, "installed", found.get)
    return found


@pytest.mark.parametrize("version", ["5.24.0", "5.9.1", "4.57.0", "5.24.0rc1"])
def test_nothing_is_said_of_what_is_not_newer(version, here):
    here |= {"transformers": version, "torch": "2.13.0+cpu"}
    assert tested.describe_newer() is None


def test_one_line_names_all_that_is_newer(here):
    here |= {"transformers": "5.100.0", "torch": "2.14.1+cu130"}
    said = tested.describe_newer({"ComfyUI": "0.34.0"})
    assert said == (
        "newer than what this version was tested with: transformers 5.100.0 (tested: up to 5.24.0), "
        "torch 2.14.1+cu130 (tested: up to 2.13.0), ComfyUI 0.34.0 (tested: up to 0.33.0)"
    )
