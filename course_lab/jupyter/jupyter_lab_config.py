"""What `make lab` sets in JupyterLab: the page takes course_lab/jupyter/custom/custom.css."""

c.LabApp.custom_css = True  # noqa: F821  Jupyter gives a configuration file its `c`
