"""Configure the site: `python -m sphinx -W docs site`. Pages are executed; a warning or an error fails the build."""

import os
import sys
from pathlib import Path

from spmd.version import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# Kernels of executed pages inherit both: the commands of the environment, and the helpers that draw pictures.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "_ext"), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "100"
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"

project = "spmd"
author = "the spmd authors"
version = release = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "generated",
]
intersphinx_mapping: dict[str, object] = {}  # nothing is downloaded when the site is built
exclude_patterns = ["_ext"]
html_theme = "furo"
html_title = f"spmd {release}"
html_static_path = ["_static"]
html_css_files = ["spmd.css"]
html_show_sphinx = False
default_role = "code"  # docstrings use single backticks for code
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
nb_execution_mode = "auto"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
# Programs are shown as text: literal blocks are not highlighted as Python.
suppress_warnings = ["mystnb.unknown_mime_type", "misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
