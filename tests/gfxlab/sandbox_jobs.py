"""Jobs for test_sandbox.py; a child imports this module by name."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from gfxlab.engine import dual_mode


def echo(payload):
    return payload


def count(payload):
    for number in range(payload["upto"]):
        yield {"number": number}
    if payload.get("then"):
        globals()[payload["then"]](payload)


def surroundings(payload):
    return {
        "interpret": os.environ.get("TRITON_INTERPRET"),
        "compiles": not dual_mode.env_interpret(),
        "gpu_touched": torch.cuda.is_initialized(),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "main": getattr(sys.modules["__main__"], "__file__", None),
        "modules": [name for name in payload.get("modules", ()) if name in sys.modules],
        "server": server(),
    }


def server():
    """This process's parent supervises it; that one's parent is the fork server."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def sleep(payload):
    time.sleep(60)


def spent(payload):
    return {"seconds": time.process_time()}


def loop(payload):
    while True:
        pass


def leave_a_process(payload):
    process = subprocess.Popen(["sleep", "60"])
    Path(payload["file"]).write_text(str(process.pid))
    time.sleep(60 if payload["sleep"] else 0)
    return {}


def leave_a_daemon(payload):
    """A process that leaves its group and its parent, as a daemon does."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(payload["file"]).write_text(str(os.getpid()))
            time.sleep(60)
        os._exit(0)
    while not Path(payload["file"]).exists():
        time.sleep(0.01)
    time.sleep(60 if payload["sleep"] else 0)
    return {}


def touch(payload):
    """What happens to each file: its text, or the name of the error."""
    found = {}
    for way in ("read", "write"):
        for path in payload[way]:
            try:
                with open(path, "r" if way == "read" else "a") as file:
                    found[f"{way} {path}"] = file.read(10) if way == "read" else file.write("x") and "written"
            except OSError as error:
                found[f"{way} {path}"] = type(error).__name__
    return found


def exit_quietly(payload):
    os._exit(0)


def segfault(payload):
    ctypes.string_at(8)


def abort(payload):
    os.abort()


def take_python_memory(payload):
    return {"size": len([bytes(1 << 20) for _ in range(10 << 10)])}


def take_torch_memory(payload):
    return {"size": torch.ones(10 << 30, dtype=torch.uint8).numel()}


def ask(payload):
    return {"answer": input("name? ")}


def print_for_ever(payload):
    while True:
        print("x" * 100)


def write_for_ever(payload):
    while True:
        os.write(1, b"y" * 10_000)


def speak(payload):
    print("from Python")
    os.write(2, b"from below\n")
    return {}


def stop(payload):
    sys.exit(3)


def fail(payload):
    raise ValueError("seven is not prime enough")


def return_an_object(payload):
    return {"value": object()}


def kill_the_server(payload):
    os.kill(server(), signal.SIGKILL)
    time.sleep(60)


def forge_the_result(payload):
    os.mkdir("../part0")
    Path("../part0/value.json").write_text("{{{")
    os._exit(0)


def compute(payload):
    """Works for so many seconds of processor time on the processor where others work too."""
    os.sched_setaffinity(0, {payload["processor"]})
    begun, clock = time.process_time(), time.monotonic()
    while time.process_time() - begun < payload["seconds"]:
        pass
    return {"by_the_clock": time.monotonic() - clock}
