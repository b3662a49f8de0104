"""Runs in every kernel that `make lab` starts, before the first cell.

The course's magics are there at once, so that an answer cell may be run before the cell that imports the course: the
first one that is used imports it. And saving a notebook does not note which Python 3 ran it, so that a lesson saved in
place is the file that git knows.
"""


def _begin():
    from IPython.core.error import UsageError
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    shell.kernel.language_info = {**shell.kernel.language_info, "version": "3"}
    cells, lines = ("exercise", "amd"), ("hint", "solution", "stub")

    def load(kind, name):
        placeholder = shell.magics_manager.magics[kind][name]
        import course_lab  # noqa: F401  registers the magics themselves

        if shell.magics_manager.magics[kind].get(name) is placeholder:
            raise UsageError(f"the course could not be loaded, so {name} does nothing: `course doctor` says what to do")

    def cell_magic(name):
        def run(line, cell):
            load("cell", name)
            shell.run_cell_magic(name, line, cell)

        shell.register_magic_function(run, "cell", name)

    def line_magic(name):
        def run(line):
            load("line", name)
            shell.run_line_magic(name, line)

        shell.register_magic_function(run, "line", name)

    for name in cells:
        cell_magic(name)
    for name in lines:
        line_magic(name)


_begin()
del _begin
