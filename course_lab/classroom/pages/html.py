"""The frame of every page: one file, no script, nothing fetched; light or dark as the system is."""

from __future__ import annotations

import re
from html import escape

MARKS = {
    "passed": ("✓", "right"),
    "held": ("?", "right numbers, to be looked at"),
    "failed": ("✗", "not right yet"),
    "not-attempted": ("·", "not attempted"),
    "missing": ("–", "no answer cell"),
    "unreadable": ("!", "could not be graded"),
}
_STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--quiet:#59636e;--page:#fff;--box:#f6f8fa;--line:#d1d9e0;--link:#0a58ca;
--passed:#1a7f37;--passed-b:#dafbe1;--held:#6e40c9;--held-b:#ece2fb;--failed:#9a4a00;--failed-b:#fff1d6;
--unreadable:#a40e26;--unreadable-b:#ffe3e3;--not-attempted:#59636e;--not-attempted-b:#f0f2f5;--missing:#59636e;
--missing-b:transparent}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--quiet:#9aa4af;--page:#0d1117;--box:#161b22;--line:#30363d;
--link:#6cb2ff;--passed:#56d364;--passed-b:#12351d;--held:#c4a7ff;--held-b:#2b1d4a;--failed:#f0b35a;--failed-b:#3a2a0c;
--unreadable:#ff9a9a;--unreadable-b:#4a1518;--not-attempted:#9aa4af;--not-attempted-b:#1b2027;--missing:#9aa4af}}
*{box-sizing:border-box}body{margin:0 auto;padding:24px 20px 60px;max-width:1180px;background:var(--page);
color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",sans-serif}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 8px}
h3{font-size:15px;margin:18px 0 6px}p{margin:4px 0 10px;max-width:78ch}.quiet{color:var(--quiet)}a{color:var(--link)}
.scroll{overflow-x:auto}table{border-collapse:collapse}th,td{padding:4px 8px;text-align:left;vertical-align:top}
th{font-weight:600}thead th{border-bottom:1px solid var(--line);position:sticky;top:0;background:var(--page)}
.grid td{text-align:center;border:1px solid var(--page);min-width:44px;font-size:13px}
.grid th[scope=row]{white-space:nowrap;max-width:240px;overflow:hidden;text-overflow:ellipsis}
.passed{color:var(--passed);background:var(--passed-b)}.held{color:var(--held);background:var(--held-b)}
.failed{color:var(--failed);background:var(--failed-b)}.unreadable{color:var(--unreadable);background:var(--unreadable-b)}
.not-attempted{color:var(--not-attempted);background:var(--not-attempted-b)}.missing{color:var(--missing)}
.legend span{display:inline-block;padding:1px 8px;margin:0 6px 6px 0;border-radius:4px}
.legend .missing{outline:1px solid var(--line)}
pre{background:var(--box);border:1px solid var(--line);border-radius:6px;padding:8px 10px;overflow-x:auto;margin:6px 0;
font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace;white-space:pre-wrap;overflow-wrap:anywhere}
code{font:13px ui-monospace,"DejaVu Sans Mono",monospace;background:var(--box);padding:0 3px;border-radius:3px}
.card{border:1px solid var(--line);border-left:4px solid var(--line);border-radius:6px;padding:8px 14px 10px;
margin:12px 0}.card.is-passed{border-left-color:var(--passed)}.card.is-failed{border-left-color:var(--failed)}
.card.is-held{border-left-color:var(--held)}.card.is-unreadable{border-left-color:var(--unreadable)}
.card h3{margin:2px 0 6px}.pair{display:grid;grid-template-columns:1fr 1fr;gap:12px}.pair>div{min-width:0}
details{margin:6px 0}summary{cursor:pointer}ul{padding-left:20px;margin:4px 0}
@media(max-width:720px){.pair{grid-template-columns:1fr}}
"""


def document(title: str, body: str) -> str:
    """A whole page; its policy lets nothing run and nothing be fetched, whatever a name or an answer says."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><meta name="referrer" content="no-referrer">'
    )
    head += f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def table(head: str, body: str, foot: str = "", kind: str = "") -> str:
    """A table that scrolls by itself where the page is narrow, of rows in HTML."""
    foot = f"<tfoot>{foot}</tfoot>" if foot else ""
    rows = f"<thead>{head}</thead><tbody>{body}</tbody>{foot}"
    return f'<div class="scroll"><table class="{kind}">{rows}</table></div>'


def mark(status: str) -> str:
    """The sign of a status, which a screen reader says in words."""
    sign, words = MARKS[status]
    return f'<span role="img" aria-label="{words}">{sign}</span>'


def prose(sentence: str) -> str:
    """A sentence, with what stands in backticks as code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(sentence))


def pre(text: str) -> str:
    """Code or output as it is."""
    return f"<pre>{escape(text)}</pre>"


def legend() -> str:
    """What the signs mean."""
    spans = (f'<span class="{status}">{sign} {words}</span>' for status, (sign, words) in MARKS.items())
    return f'<p class="legend">{"".join(spans)}</p>'
