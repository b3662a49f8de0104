"""Scripts to begin with, written as for a card: `gfxlab run -m gfxlab.examples.vector_add`."""
