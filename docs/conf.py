"""The site: ``nox -s docs`` builds it, with warnings as errors; no page loads from elsewhere."""

import os
import sys
from pathlib import Path

import quantal

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_site"))
os.environ.setdefault("KERAS_BACKEND", "jax")  # any of them does for the reference
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

project = "quantal"
author = "The quantal authors"
copyright = author
version = release = quantal.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc", "as_it_is", "mathml", "reference"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_site", "benchmarks", "explorer", "figures", "results"]
default_role = "py:obj"  # of `name` in a docstring

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4  # as GitHub has them

nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_output_stderr = "remove"  # warnings of other libraries, with paths of the machine that built it

numpydoc_show_class_members = False
autodoc_inherit_docstrings = False  # those of the frameworks are theirs
autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "bysource"

# A block of doctests ends with an empty line, which need not be seen.
highlight_options = {"python": {"stripnl": True}}

html_theme = "furo"
pygments_dark_style = "github-dark"  # the default underlines names as if they were links
html_title = "quantal"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
templates_path = ["_site/templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html", "sidebar/search.html", "sidebar/scroll-start.html",
        "sidebar/explorer.html", "sidebar/navigation.html", "sidebar/scroll-end.html",
    ]
}  # fmt: skip
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b62a8", "color-brand-content": "#0b62a8"},
    "dark_css_variables": {"color-brand-primary": "#6db7f2", "color-brand-content": "#6db7f2"},
}
