"""Builds a page: one HTML file with its data, scripts and style, which loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from spmd.viewing.tables import Json

#: The scripts in the order in which they run.
SCRIPTS = (
    *("core", "mesh", "layout", "details", "zoom", "overview"),
    *("grid", "arrays", "program", "communication", "memory", "time", "heat", "values", "compare", "main"),
)
#: Characters that could end the element with the data or start another, and line ends in old scripts.
_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="page"><noscript>This page draws a program with JavaScript, which is off.</noscript></div>
<script type="application/json" id="spmd-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


@cache
def _asset(name: str) -> str:
    return (files("spmd.viewing") / "assets" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    return "\n".join(f"{{\n{_asset(f'{name}.js')}\n}}" if name != "core" else _asset("core.js") for name in SCRIPTS)


def embedded(data: Json) -> str:
    """Return `data` as JSON that is safe inside an HTML element, whatever texts it contains."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def page(documents: Sequence[Json], title: str) -> str:
    """Return the page of one program, or of two side by side; only its own script may run, without network access."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src blob: data:"
    return _PAGE.format(
        policy=policy,
        title=html.escape(title),
        style=_asset("style.css"),
        data=embedded({"documents": list(documents)}),
        script=script,
    )
