"""JupyterHub for one box and one room: `make hub` starts it as root, `workshop/accounts.py` makes the accounts.

COURSE_HUB_STATE: the hub's folder (build/hub). COURSE_HUB_URL: where browsers come (http://0.0.0.0:8000).
COURSE_HUB_PORTS: of the hub and of the proxy's own interface (8081,8001). COURSE_BOARD=yes: the live board.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATE = Path(os.environ.get("COURSE_HUB_STATE", ROOT / "build" / "hub"))
BIN = Path(sys.prefix) / "bin"
sys.path.insert(0, str(ROOT / "workshop"))

import rooms  # noqa: E402  beside this file
from spawner import LimitedSpawner  # noqa: E402

rooms.check(ROOT, STATE)
private, shared = rooms.folders(STATE)
hub_port, proxy_port = os.environ.get("COURSE_HUB_PORTS", "8081,8001").split(",")
c = get_config()  # noqa: F821  JupyterHub gives it to its configuration

# ---- the hub ----
c.JupyterHub.bind_url = os.environ.get("COURSE_HUB_URL", "http://0.0.0.0:8000")
c.JupyterHub.hub_ip, c.JupyterHub.hub_port = "127.0.0.1", int(hub_port)
c.JupyterHub.db_url = f"sqlite:///{private}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(private / "cookie_secret")
c.JupyterHub.concurrent_spawn_limit = 8
c.ConfigurableHTTPProxy.command = [str(STATE / "node_modules" / ".bin" / "configurable-http-proxy")]
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.pid_file = str(private / "proxy.pid")

# ---- who may enter: Unix accounts of two groups, with their passwords ----
c.JupyterHub.authenticator_class = "pam"
c.PAMAuthenticator.open_sessions = False
c.PAMAuthenticator.allowed_groups = {rooms.LEARNERS, rooms.INSTRUCTORS}
c.PAMAuthenticator.admin_groups = {rooms.INSTRUCTORS}

# ---- a learner's server ----
c.JupyterHub.spawner_class = LimitedSpawner
c.Spawner.mem_limit = os.environ.get("COURSE_HUB_MEMORY", "4G")
c.Spawner.cpu_limit = float(os.environ.get("COURSE_HUB_CPUS", "2"))
c.Spawner.start_timeout = c.Spawner.http_timeout = 300  # thirty of them at nine o'clock share few cores
c.Spawner.env_keep = ["LANG", "LC_ALL", "PYTHONPATH"]
c.Spawner.environment = {
    "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
    "COURSE_WORK": lambda spawner: str(Path(f"~{spawner.user.name}").expanduser() / "work"),
    "COURSE_WEIGHTS": str(shared),
    "COURSE_QUEUE": str(shared / "queue"),
    "JUPYTER_CONFIG_PATH": str(ROOT / "course_lab" / "jupyter"),
    "JUPYTER_PATH": str(ROOT / "course_lab" / "jupyter"),
    "OMP_NUM_THREADS": "1",  # the room shares the cores
}
c.Spawner.cmd = ["/bin/sh", "-c", 'umask 077; course sync > sync.log 2>&1; exec jupyterhub-singleuser "$@"', "sh"]
c.Spawner.default_url = "/lab/tree/work/notebooks/00_start_here.ipynb"
# Sockets in the learner's own folder: anyone on this machine could listen to a kernel's outputs on a TCP port.
c.Spawner.args = ["--KernelManager.transport=ipc"]

# ---- the live board ----
if os.environ.get("COURSE_BOARD", "no") == "yes":
    rooms.add_board(c, ROOT, private)
