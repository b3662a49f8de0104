"""One page about a kernel from all engines: what is wrong with it, then what it costs.

from gfxlab.review import review
page = review("my_kernels.py:add_kernel", arch="gfx942")
page.hazards, page.costs, page.html()
"""

from gfxlab.review.findings import Finding
from gfxlab.review.reviewing import Review, review

__all__ = ["Finding", "Review", "review"]
