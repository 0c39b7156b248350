"""The site: ``nox -s docs`` builds it, with warnings as errors; nothing is loaded from elsewhere."""

import sys
from pathlib import Path

import quantal

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "quantal"
author = "The quantal authors"
copyright = author  # noqa: A001 - Sphinx's name for it
version = release = quantal.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "mathml",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "results", "benchmarks", "explorer", "_site"]
html_extra_path = ["_copied"]  # made by the session: the explorer as it is

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # a page of the reference may begin at a lower level

nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autosummary_generate = True
numpydoc_show_class_members = False
autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = "quantal"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b62a8", "color-brand-content": "#0b62a8"},
    "dark_css_variables": {"color-brand-primary": "#6db7f2", "color-brand-content": "#6db7f2"},
}
