"""The documentation as a site."""

from __future__ import annotations

from pathlib import Path

from console import ROOT
from environment import Environment

SITE = ROOT / "build" / "site"


def command(environment: Environment) -> list[str | Path]:
    """Makes it with Sphinx, to which every warning, such as of a dead link, is an error."""
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", "docs/site"]
    return [environment.tool("python"), "-m", "sphinx", *options, ".", SITE]
