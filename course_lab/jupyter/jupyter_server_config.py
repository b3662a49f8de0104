"""What `make lab` sets in JupyterLab's server."""

import warnings
from pathlib import Path

from course_lab.work.in_place import keep_stored_outputs

warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")  # the server takes it for another one
c.ContentsManager.pre_save_hook = keep_stored_outputs  # noqa: F821  Jupyter gives a configuration file its `c`
c.ServerApp.tornado_settings = {"static_custom_path": [str(Path(__file__).parent / "custom")]}  # noqa: F821
