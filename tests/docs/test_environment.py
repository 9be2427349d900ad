"""The environment variables: the page that lists them, and the command that does."""

from __future__ import annotations

import importlib.util
import json

import pytest
from harness.doc_blocks import ROOT

from torchcomms import _variables
from torchcomms.cli import main


def test_the_page_has_what_the_code_declares() -> None:
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "docs_environment.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    inside = tool.PAGE.read_text().partition(tool.BEGIN)[2].partition(tool.END)[0]
    assert inside == tool.table(), "run `make docs`"


def test_the_command_lists_them_with_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHCOMM_TIMEOUT_SECONDS", "77")
    monkeypatch.delenv("CTRAN_LOG", raising=False)
    assert main(["env"]) == 0
    out = capsys.readouterr().out
    assert "TORCHCOMM_TIMEOUT_SECONDS (seconds, default: 600, live)\n  set to 77\n" in out
    assert "CTRAN_LOG (levels, default: warn, live)\n  The same" in out
    assert "MASTER_PORT (int, 0 to 65535, default: 0)\n" in out
    assert "TORCHCOMM_RANK (int, at least -1, default: -1)\n" in out
    assert "\n  Port of the store. 0: none.\n  docs/launching.md\n" in out
    assert main(["env", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    port = rows["MASTER_PORT"]
    assert (port["type"], port["page"]) == ("int, 0 to 65535", "docs/launching.md")


def test_the_page_that_is_named_says_something_about_the_variable() -> None:
    for variable in _variables.variables():
        assert variable.name in (ROOT / variable.page).read_text(), variable.name


def test_help_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert "plan" in out
    assert "env" in out
