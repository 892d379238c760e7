"""One look for all views: a colour and a place for each rank, a word and a sign for each state.

All colours come from JupyterLab's CSS variables, with a fall-back for other pages, so that a view
follows the light and the dark theme. Colour is never the only cue: ranks carry their number, states
their word.
"""

from __future__ import annotations

from html import escape

# Okabe and Ito (2008), "Color Universal Design", without its black and yellow, which vanish in one
# of the two themes; the last two are from Paul Tol's "muted" scheme.
_RANKS = (
    ("#0072b2", "#ffffff"),
    ("#e69f00", "#000000"),
    ("#009e73", "#ffffff"),
    ("#cc79a7", "#000000"),
    ("#56b4e9", "#000000"),
    ("#d55e00", "#ffffff"),
    ("#999933", "#000000"),
    ("#882255", "#ffffff"),
)

SIGNS = {
    "queued": "◷",
    "starting": "○",
    "waiting": "○",
    "running": "●",
    "paused": "‖",
    "done": "✓",
    "finished": "✓",
    "failed": "✗",
    "killed": "✗",
    "stopped": "■",
    "time-out": "✗",
}

TEXT = "var(--jp-content-font-color1, #212121)"
QUIET = "var(--jp-content-font-color2, #616161)"
PAPER = "var(--jp-layout-color1, #ffffff)"
TINT = "var(--jp-layout-color2, #eeeeee)"
SHADE = "var(--jp-layout-color3, #bdbdbd)"
PALE = f"color-mix(in srgb, {SHADE} 55%, {TINT})"
STRONG = f"color-mix(in srgb, {SHADE} 88%, {TEXT})"
LINE = "var(--jp-border-color1, #bdbdbd)"
MONO = "var(--jp-code-font-family, Menlo, Consolas, 'DejaVu Sans Mono', monospace)"
SANS = "var(--jp-ui-font-family, system-ui, -apple-system, 'Segoe UI', sans-serif)"
GOOD = "var(--jp-success-color1, #388e3c)"
BAD = "var(--jp-error-color1, #d32f2f)"
WARN = "var(--jp-warn-color1, #f57c00)"


def rank_colour(rank: int) -> str:
    """The colour of a rank, everywhere; from rank 8 on they repeat."""
    return _RANKS[rank % len(_RANKS)][0]


def badge(rank: int | None) -> str:
    """The name of a rank on its colour; None is torchrun itself."""
    if rank is None:
        return '<span class="ddpc-badge ddpc-agent">torchrun</span>'
    colour, ink = _RANKS[rank % len(_RANKS)]
    return (
        f'<span class="ddpc-badge" style="background:{colour};color:{ink}">rank&nbsp;{rank}</span>'
    )


def state(word: str) -> str:
    """A state as sign and word, e.g. "● running"."""
    name = word if word in SIGNS else "other"
    return f'<span class="ddpc-state ddpc-{name}">{SIGNS.get(word, "·")} {escape(word)}</span>'


def percent(share: float | None) -> str:
    """0.824 → "82 %"; a dash where there is nothing to share."""
    return "–" if share is None else f"{100 * share:.0f} %"


def page(body: str) -> str:
    """A view's HTML with the style sheet that it needs."""
    return f"<style>{CSS}</style>{body}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A small table of numbers; the cells are HTML already."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="ddpc-table"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def text_table(head: list[str], rows: list[list[str]]) -> str:
    """The same table for a terminal."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


CSS = f"""
.ddpc {{ color: {TEXT}; font-family: {SANS}; font-size: 13px; line-height: 1.45;
  max-width: 1100px; }}
.ddpc svg {{ display: block; max-width: 100%; height: auto; font-family: {SANS}; }}
.ddpc.ddpc :not(pre) > code, .ddpc code, .ddpc pre {{ font-family: {MONO}; font-size: 12px;
  background: none; color: inherit; padding: 0; }}
.ddpc.ddpc.ddpc tr, .ddpc.ddpc.ddpc tr:hover {{ background: none; }}
.ddpc-title {{ font-size: 15px; font-weight: 600; margin: 2px 0 6px; }}
.ddpc-quiet {{ color: {QUIET}; }}
.ddpc-badge {{ display: inline-block; min-width: 46px; padding: 0 6px; border-radius: 3px;
  text-align: center; font-size: 12px; font-weight: 600; line-height: 18px; white-space: nowrap; }}
.ddpc-agent {{ background: {SHADE}; color: {TEXT}; font-weight: 400; }}
.ddpc-state {{ white-space: nowrap; }}
.ddpc-running, .ddpc-done, .ddpc-finished {{ color: {GOOD}; }}
.ddpc-failed, .ddpc-killed, .ddpc-time-out {{ color: {BAD}; font-weight: 600; }}
.ddpc-paused, .ddpc-stopped {{ color: {WARN}; font-weight: 600; }}
.ddpc-queued, .ddpc-starting, .ddpc-waiting {{ color: {QUIET}; }}
.ddpc-table {{ border-collapse: collapse; margin: 6px 0; font-size: 13px; }}
.ddpc .ddpc-table th, .ddpc .ddpc-table td {{ padding: 2px 12px; text-align: right; border: 0;
  background: none; color: {TEXT}; font-variant-numeric: tabular-nums; }}
.ddpc .ddpc-table th {{ color: {QUIET}; font-weight: 400; border-bottom: 1px solid {LINE}; }}
.ddpc .ddpc-table th:first-child, .ddpc .ddpc-table td:first-child {{ text-align: left;
  padding-left: 0; }}
"""
