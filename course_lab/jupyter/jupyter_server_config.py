"""What `make lab` sets in JupyterLab's server."""

import warnings

from course_lab.work.in_place import keep_stored_outputs

warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")  # the server takes it for another one
c.ContentsManager.pre_save_hook = keep_stored_outputs  # noqa: F821  Jupyter gives a configuration file its `c`
