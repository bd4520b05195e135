"""The Ray Serve deployment, on a local cluster of two nodes with a replica on each."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tasks.small_models import save_folder

if find_spec("ray") is None:
    pytest.skip("ray is not installed, so serve/ray_app.py is NOT tested: pip install glassformer[ray]", allow_module_level=True)  # fmt: skip # noqa: E501

# In a process of its own: Ray starts others, and its warnings are not ours.
SCRIPT = """
import json, sys
import httpx, ray
from ray import serve
from ray.cluster_utils import Cluster
from glassformer.serve.ray_app import build

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(build({"models": f"demo={sys.argv[1]}", "replicas": "2", "max_chars": "1000", "threads": "1"}))
url = f"http://127.0.0.1:{sys.argv[2]}"
fields = {"q": "the cat", "source": "en", "target": "fr"}
answers = [httpx.post(url + "/translate", json=fields, timeout=60).json() for _ in range(8)]
body = {"model": "demo", "prompt": "the cat", "stream": True}
stream = httpx.post(url + "/v1/completions", json=body, timeout=60).text.strip().split("\\n\\n")
long = httpx.post(url + "/translate", json=fields | {"q": "a" * 1001}, timeout=60)
replicas = serve.status().applications["default"].deployments["Replica"].replica_states
print(json.dumps({"answers": answers, "stream": stream, "long": [long.status_code, long.json()],
                  "replicas": {str(key): n for key, n in replicas.items()}}))
serve.shutdown()
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
def test_two_replicas_answer_as_one_server(tmp_path: Path) -> None:
    from serve.serving import free_port

    folder = save_folder(tmp_path / "demo")
    command = [sys.executable, "-c", SCRIPT, str(folder), str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]  # Ray writes lines of its own
    found = json.loads(line)
    assert found["replicas"] == {"RUNNING": 2} or found["replicas"] == {"ReplicaState.RUNNING": 2}
    assert len({json.dumps(answer) for answer in found["answers"]}) == 1 and found["answers"][0]["translatedText"]
    assert found["stream"][-1] == "data: [DONE]" and len(found["stream"]) >= 2
    assert found["long"][0] == 400 and "1000" in found["long"][1]["error"]
