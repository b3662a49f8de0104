#!/bin/sh
# An environment with nbgrader that sees the course's: nbgrader's extensions stay out of the learner's JupyterLab.
# scripts/nbgrader.sh PYTHON FOLDER
set -e
packages=$("$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$1" -m venv "$2"
"$2"/bin/python -c 'import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "course.pth").write_text(f"import site; site.addsitedir({sys.argv[1]!r})\n")' "$packages"
"$2"/bin/python -m pip install --quiet "nbgrader>=0.9.5,<0.10"
# nbgrader starts the program alembic, which must see nbgrader; where the course's environment has one, pip made none here
"$2"/bin/python -m pip install --quiet --ignore-installed --no-deps alembic
