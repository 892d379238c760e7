"""What a learner sees: the live panel, the timeline, diffs, predictions and sliders.

Every view shows itself: `_repr_html_` in a notebook, `str()` anywhere else, with equal content.
Only the panel, `predict` and `explore` need ipywidgets, and only in a notebook. The figures are SVG
text that this package writes, so that they follow JupyterLab's theme and are drawn in milliseconds.
"""
