"""A worker of ``rote bench`` that only pretends: ``python stub_worker.py NAME FOLDER SCENARIO``."""

import json
import os
import signal
import sys
import time

name, folder, scenario = sys.argv[1:]
EQUAL = {"calls": 8, "bitwise": True, "largest": None, "what": "", "unseen": ""}
DIFFERENT = {"calls": 8, "bitwise": False, "largest": 0.5, "what": "call 3: result differs", "unseen": ""}


def answer(question: dict) -> dict:
    what = question["do"]
    if scenario == f"{name} hangs at {what}":
        time.sleep(60)
    if scenario == f"{name} dies at {what}":
        print("a last word", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if scenario == f"{name} is killed beside the others" and not os.path.exists(f"{folder}/tried"):
        open(f"{folder}/tried", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if scenario == f"{name} fails at {what}":
        return {"error": "RuntimeError: no", "memory": False}
    if scenario == f"{name} lacks memory" and what == "warm" and not os.path.exists(f"{folder}/tried"):
        open(f"{folder}/tried", "w").close()
        return {"error": "OutOfMemoryError: none", "memory": True}
    if what == "build":
        return {"device": "cpu", "gpu": None, "threads": 1}
    if what == "warm":
        again = name == "eager" and os.path.exists(f"{folder}/warm")
        open(f"{folder}/warm", "w").close()
        differs = name == "rote" and scenario in ("rote differs", "rote differs as eager does")
        differs = differs or (again and scenario == "rote differs as eager does")
        equality = DIFFERENT if differs else EQUAL
        seconds = [0.5, 0.01, 0.001, *[1e-4] * 5]
        return {"seconds": seconds, "equality": equality, "draws": False, "held_bytes": 10, "peak_bytes": 20}
    if what == "settle":
        calls = 5 if name == "rote" and scenario != "nothing settles" else 0
        settled = scenario != "nothing settles"
        return {"settled": settled, "seconds": 2.0, "calls": calls, "held_bytes": 30}
    if what == "again":
        worse = scenario in (f"{name} differs at last", f"{name} has state")
        return {"equality": DIFFERENT if worse else EQUAL}
    if what == "turn":
        return {"latency_us": [100.0, 120.0, 140.0], "host_us": []}
    return {"notes": [f"{name} was asked"], "launches": None}


print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    print(json.dumps({"at": "work"}), flush=True)
    print(json.dumps(answer(json.loads(line))), flush=True)
