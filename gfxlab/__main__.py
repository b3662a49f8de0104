"""`python -m gfxlab` is the command `gfxlab`."""

from gfxlab.cli import main

if __name__ == "__main__":
    main()
