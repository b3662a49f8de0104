# Every command of the course. `make help` lists them.
#   make lab PORT=8890 BROWSER=no     another port; no browser (on a server)
#   make setup TORCH=cpu              cpu, rocm or cuda instead of what the machine suggests; auto looks again
#   make setup ROCM=7.1               another ROCm version of PyTorch's wheels
#   make setup PYTHON=python3.12      another Python (3.11 or newer)

PYTHON ?= python3
PORT ?= 8888
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q
UNITS := $(PYTEST) -n 2 --dist worksteal  # neighbours stay in one process and share what they compile and compute
NBVAL := $(PYTEST) --nbval -n 2 --dist loadfile --no-loadscope-reorder
LAB := $(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/work/notebooks/00_start_here.ipynb
export TORCH ROCM
test test-full test-simulator test-workshop: export OMP_NUM_THREADS = 1  # pytest-xdist has a process for each core already

.DEFAULT_GOAL := help
.PHONY: help setup lab update test test-full test-simulator test-workshop test-hub test-browser test-gpu bench compat lessons book slides wheelhouse hub load lint clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup:  ## install everything into .venv; quick when nothing has changed
	@$(PYTHON) scripts/setup.py

# Kernels that know the course's magics from the start, and a server that leaves lessons which were only run as they are.
lab: export JUPYTER_CONFIG_PATH := $(CURDIR)/course_lab/jupyter$(if $(JUPYTER_CONFIG_PATH),:$(JUPYTER_CONFIG_PATH))
lab: export JUPYTER_PATH := $(CURDIR)/course_lab/jupyter$(if $(JUPYTER_PATH),:$(JUPYTER_PATH))
lab: setup  ## bring your copies in work/ up to date and open them in JupyterLab
	@$(BIN)/course sync || true
	@$(LAB) --port=$(PORT) $(if $(filter no,$(BROWSER)),--no-browser) $(if $(filter 0,$(shell id -u)),--allow-root)

update: setup  ## get the newest version of the course; what you did in work/ stays
	@$(BIN)/course sync --clear
	git pull --ff-only
	@$(MAKE) --no-print-directory setup
	@$(BIN)/course sync

# Later lessons run longer, so they begin first.
test: setup lint  ## the whole test suite but the slow tests: units, mutants, notebooks
	$(UNITS) tests exercises
	$(NBVAL) `ls -r notebooks/*.ipynb` `ls -r solutions/*.ipynb`

test-full: test  ## also the slow tests
	$(UNITS) -m slow tests

test-simulator: setup  ## every kernel on every simulated GPU: errors, speed; minutes
	$(PYTEST) -n 2 -m "slow or not slow" tests/gfxlab/simulator
	$(BIN)/python -m course_lab.bench.survey

test-workshop: setup  ## a class: hostile submissions, kills, throughput, a cluster, nbgrader; needs bubblewrap
	$(BIN)/python -m pip install --quiet "distributed>=2024.8"
	@test -x build/nbgrader/bin/nbgrader || scripts/nbgrader.sh $(BIN)/python build/nbgrader
	$(PYTEST) -n 2 --dist loadfile -m "slow or not slow" tests/lab/classroom

test-hub: setup  ## JupyterHub with real accounts, over HTTP and in a browser; as root; CHART=FOLDER: the cluster's values too
	$(BIN)/python -m pip install --quiet "jupyterhub>=5.3,<7" playwright jsonschema
	npm install --silent --no-fund --no-audit --prefix build/hub configurable-http-proxy@5
	$(PYTEST) -m "hub or browser or slow or not slow" tests/workshop

test-browser: setup  ## the course in a browser; needs Debian's chromium, screenshots in build/screenshots
	$(BIN)/python -m pip install --quiet playwright
	npm install --silent --no-fund --no-audit --prefix build/axe axe-core || true
	$(PYTEST) -m browser tests/browser

test-gpu: setup  ## the kernels' tests, slow ones too, on this machine's GPU
	$(PYTEST) -n 8 --gpu -m "slow or not slow" tests/kernels --ignore=tests/kernels/test_amd_code.py
	$(PYTEST) --gpu -m gpu tests/lab

bench: setup  ## time the kernels on this GPU, few sizes; all of them: .venv/bin/python -m benchmarks
	@$(BIN)/python -m benchmarks --short

compat: setup  ## the instruments and all notebooks on Triton 3.6 to 3.9; half an hour
	$(BIN)/python scripts/compat.py

lessons: setup  ## build notebooks/, exercises/ and solutions/ from course_lessons/
	$(BIN)/course build

book: setup  ## all lessons and solutions as static HTML in build/book, to be read without a server
	@$(BIN)/python -m course_lab.book build/book

slides: setup  ## all lessons as slides in build/slides, to be shown without a network
	npm install --silent --no-fund --no-audit --prefix build/reveal reveal.js@5 requirejs@2 jquery@3
	@$(BIN)/course slides --out build/slides --scripts build/reveal/node_modules

wheelhouse:  ## every wheel of `make setup` in build/wheelhouse, for a room without a network
	@$(PYTHON) scripts/wheelhouse.py

hub: setup  ## JupyterHub for a room on this machine, as root: BOARD=yes with the live board (workshop/README.md)
	$(BIN)/python -m pip install --quiet "jupyterhub>=5.3,<7"
	npm install --silent --no-fund --no-audit --prefix build/hub configurable-http-proxy@5
	@COURSE_WEIGHTS=$(CURDIR)/build/hub/shared $(BIN)/python -c "from course_lab import model; model.load(device='cpu')"
	COURSE_BOARD=$(BOARD) $(BIN)/python -m jupyterhub -f workshop/jupyterhub_config.py

load: setup  ## thirty learners at once on this machine: memory, waiting times, verdicts; a few minutes
	$(BIN)/python workshop/load.py --learners 30 --store

lint: setup  ## check the style of the code
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet

clean:  ## remove caches and build files; keeps .venv and your work
	@rm -rf .pytest_cache .ruff_cache .hypothesis build *.egg-info gfxlab/build gfxlab/*.egg-info
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
