"""What a learner sees: the live panel, the timeline, diffs, predictions, sliders and pictures.

Every view shows itself: `_repr_html_` in a notebook, `str()` anywhere else, with equal content.
Only the panel, `predict` and `explore` need ipywidgets, and only in a notebook. Lanes in time are
SVG text that this package writes, charts of quantities are matplotlib's; both follow the theme.
"""
