"""A real proxy of 5.3.3 before ``rmqtool serve``, in a network of its own; started by ``test_proxy``.

    unshare -Urn python -m tests.conformance.live_proxy LIBRARY CLIENT DIRECTORY COUNT OUT

The proxy listens at all addresses of its machine. LIBRARY has its packages, CLIENT those of the gRPC client.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.conformance.client_programs import create_topics
from tests.conformance.oracle.packages import _OPENED
from tests.conformance.serving import serve

GRPC, REMOTING = 8081, 8080
TOPIC = "Grpc"
_LIMIT = 300


def proxy(library: Path, home: Path, names: str) -> subprocess.Popen[bytes]:
    """Start a proxy in cluster mode; return it when clients may come."""
    conf = home / "conf"
    conf.mkdir(parents=True)
    settings = {"rocketMQClusterName": "DefaultCluster", "grpcServerPort": GRPC, "remotingListenPort": REMOTING}
    (conf / "rmq-proxy.json").write_text(json.dumps(settings))
    (conf / "quiet.xml").write_text("<configuration><root level='OFF'/></configuration>")
    properties = {
        "user.home": home,
        "rocketmq.home.dir": home,
        "rmq.logback.configurationFile": conf / "quiet.xml",
        "logback.configurationFile": conf / "quiet.xml",
    }
    named = [f"-D{name}={value}" for name, value in properties.items()]
    words = ["-pm", "CLUSTER", "-n", names, "-pc", str(conf / "rmq-proxy.json")]
    java = ["java", "-Xmx768m", "-XX:+UseSerialGC", *_OPENED, *named, "-cp", f"{library}/*"]
    with (home / "out").open("wb") as out:
        process = subprocess.Popen(
            [*java, "org.apache.rocketmq.proxy.ProxyStartup", *words],
            stdout=out, stderr=out, cwd=home, env=os.environ | {"RMQ_PROXY_HOME": str(home)},
        )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, (home / "out").read_text()[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", GRPC)) == 0:
                return process
        time.sleep(0.2)
    raise TimeoutError("the proxy does not listen")


def life(library: Path, client: Path, directory: Path, count: str) -> dict[str, object]:
    """Live, and return what the client saw."""
    served = directory / "served"
    served.mkdir()
    with serve(served, "--listen", "127.0.0.1:10911") as names:
        create_topics(names, [TOPIC])
        process = proxy(library, directory / "proxy", names)
        try:
            program = Path(__file__).parent / "clients" / "grpc_journey.py"
            done = subprocess.run(
                [sys.executable, str(program), f"127.0.0.1:{GRPC}", TOPIC, count],
                capture_output=True, text=True, timeout=_LIMIT, check=False,
                env=os.environ | {"PYTHONPATH": str(client), "HOME": str(directory)}, cwd=directory,
            )  # fmt: skip
        finally:
            process.terminate()
            process.wait(60)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    seen = life(*map(Path, sys.argv[1:4]), sys.argv[4])
    Path(sys.argv[5]).write_text(json.dumps(seen))
