"""Records every revision of an etcd store, through the JSON gateway of its members.

Each line of the file that it writes is one of:

  {"revision": R, "seen": T, "events": [{"key": K, "value": V or null, "lease": L, "create": C}, …]}
  {"read": R, "asked": T}   a linearizable read that was sent at T was answered with revision R

T is the monotonic clock in seconds. A revision was committed before it was seen, and after every
read that did not show it was sent; no clock of a host is believed.
"""

import base64
import http.client
import json
import threading
import time
from urllib.parse import urlsplit

WATCH_IDLE = 3.0
READ_EVERY = 0.2


def decode(text):
    return base64.b64decode(text or "").decode("utf-8", "replace")


def post(endpoint, path, body, timeout):
    """Sends a request; returns the connection and the answer, whose body is not read yet."""
    where = urlsplit(endpoint)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
    head = {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"}
    connection.request("POST", path, json.dumps(body), head)
    return connection, connection.getresponse()


class Recorder:
    def __init__(self, endpoints, path):
        self.endpoints = endpoints
        self.file = open(path, "w", encoding="utf-8")
        self.lock = threading.Lock()
        self.next = 1

    def write(self, line):
        with self.lock:
            self.file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self.file.flush()

    def run(self):
        threading.Thread(target=self.read_revisions, daemon=True).start()
        turn = 0
        while True:
            endpoint = self.endpoints[turn % len(self.endpoints)]
            turn += 1
            # A member that is down, has no leader or is silent is left for the next one.
            try:
                self.follow(endpoint)
            except (OSError, ValueError, http.client.HTTPException):
                time.sleep(0.1)

    def follow(self, endpoint):
        everything = {"key": "AA==", "range_end": "AA==", "start_revision": str(self.next)}
        connection, answer = post(endpoint, "/v3/watch", {"create_request": everything}, WATCH_IDLE)
        try:
            while line := answer.readline():
                result = json.loads(line).get("result", {})
                if result.get("canceled"):
                    if "compact_revision" in result:
                        raise SystemExit(f"revisions before {result['compact_revision']} are compacted")
                    return
                self.take(result.get("events", []))
        finally:
            connection.close()

    def take(self, events):
        seen = time.monotonic()
        by_revision = {}
        for event in events:
            kv = event["kv"]
            is_deletion = event.get("type") == "DELETE"
            change = {
                "key": decode(kv.get("key")),
                "value": None if is_deletion else decode(kv.get("value")),
                "lease": int(kv.get("lease", 0)),
                "create": int(kv.get("create_revision", 0)),
            }
            by_revision.setdefault(int(kv["mod_revision"]), []).append(change)
        for revision in sorted(by_revision):
            if revision >= self.next:
                self.write({"revision": revision, "seen": seen, "events": by_revision[revision]})
                self.next = revision + 1

    def read_revisions(self):
        turn = 0
        while True:
            asked = time.monotonic()
            try:
                endpoint = self.endpoints[turn % len(self.endpoints)]
                connection, answer = post(endpoint, "/v3/kv/range", {"key": "AA=="}, 2.0)
                revision = int(json.loads(answer.read())["header"]["revision"])
                connection.close()
                self.write({"read": revision, "asked": asked})
            except (OSError, ValueError, KeyError, http.client.HTTPException):
                turn += 1
            time.sleep(READ_EVERY)


def load(path):
    """Returns the revisions of a record in their order, and the reads."""
    revisions, reads = [], []
    with open(path, encoding="utf-8") as file:
        for line in file:
            # The recorder may have been killed in the middle of its last line.
            if not line.endswith("\n"):
                break
            entry = json.loads(line)
            (revisions if "revision" in entry else reads).append(entry)
    return revisions, reads
