"""The instruments of the course. Importing this package makes kernels launch on CPU tensors."""

try:
    from course_kernels._triton import dual_mode
except Exception as error:  # torch or Triton is missing or broken: `course doctor` must still run
    import warnings

    warnings.warn(f"No kernel can run here: {error}. `python -m course_lab doctor` says what to do.", stacklevel=2)
else:
    dual_mode.enable()
