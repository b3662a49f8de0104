"""A user of the hub over HTTP: what a browser does, without one."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from dataclasses import dataclass, field

import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

SECONDS = 300  # a server's start on a busy machine


@dataclass
class User:
    """Logs in with `enter`; `run` executes code in a kernel of theirs."""

    address: str
    name: str
    session: requests.Session = field(default_factory=requests.Session)
    kernel: str = ""

    def get(self, path: str, **more) -> requests.Response:
        return self.session.get(f"{self.address}{path}", timeout=60, **more)

    def enter(self, password: str) -> requests.Response:
        """Fill in the form of the first page."""
        self.get("/hub/login")
        form = {"username": self.name, "password": password, "_xsrf": self.session.cookies["_xsrf"]}
        return self.session.post(f"{self.address}/hub/login", data=form, timeout=60)

    def start(self) -> None:
        """Start the server, and wait until its first page is there."""
        self.get(f"/hub/spawn/{self.name}")
        deadline = time.monotonic() + SECONDS
        while True:
            page = self.get(f"/user/{self.name}/lab/tree/work/notebooks/00_start_here.ipynb")
            if page.ok and f"/user/{self.name}/lab" in page.url:
                return
            assert time.monotonic() < deadline, f"{page.url}: {page.text[:500]}"
            time.sleep(2)

    def post(self, path: str, content: dict) -> requests.Response:
        """To their own server."""
        where = f"/user/{self.name}/"
        token = next(c.value for c in self.session.cookies if c.name == "_xsrf" and c.path == where)
        return self.session.post(f"{self.address}{path}", json=content, headers={"X-XSRFToken": token}, timeout=SECONDS)

    def run(self, code: str) -> str:
        """What the code prints and shows, and the error it ends with."""
        if not self.kernel:
            made = self.post(f"/user/{self.name}/api/kernels", {"name": "python3"})
            assert made.status_code == 201, made.text
            self.kernel = made.json()["id"]
        return asyncio.run(self._run(code))

    async def _run(self, code: str) -> str:
        cookies = {c.name: c.value for c in self.session.cookies if c.path in ("/", f"/user/{self.name}/")}
        address = re.sub("^http", "ws", self.address) + f"/user/{self.name}/api/kernels/{self.kernel}/channels"
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        socket = await websocket_connect(HTTPRequest(address, headers=headers), max_message_size=1 << 27)
        sent, text = uuid.uuid4().hex, []
        header = {
            "msg_id": sent,
            "msg_type": "execute_request",
            "session": "s",
            "username": self.name,
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await socket.write_message(json.dumps(message))
        while True:
            reply = json.loads(await asyncio.wait_for(socket.read_message(), SECONDS))
            if reply["parent_header"].get("msg_id") != sent:
                continue
            kind, content = reply["msg_type"], reply["content"]
            if kind == "stream":
                text.append(content["text"])
            elif kind in ("display_data", "execute_result"):
                text.append(content["data"].get("text/plain", ""))
            elif kind == "error":
                text.append(f"{content['ename']}: {content['evalue']}")
            elif kind == "status" and content["execution_state"] == "idle":
                return "\n".join(text)
