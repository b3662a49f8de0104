"""Our kernels beside others', as AMD's compiler makes them and the simulator executes them; no GPU is needed.

    python -m benchmarks.machine_code --path triton=DIR --path liger=DIR --path aiter=DIR --path flag_gems=DIR
    python -m benchmarks.machine_code rms_norm --arch gfx1100     # one family, one architecture, what is installed
    python -m benchmarks.machine_code --stored                    # the page and its picture, from the stored figures

`plain` holds kernels as tutorials print them, `rivals` knows where others' are, `contests` what is compared, `figures`
what is counted, `page` how it is shown.
"""
