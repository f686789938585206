"""Checks the laws of rollouts at every revision of an etcd store.

It knows the store by docs/keys.md alone and shares no code with the programs under test.

  rollout_laws.py record ENDPOINT,… FILE   records until it is killed
  rollout_laws.py check FILE               prints each violation, then counts; exits 1 if there is one
  rollout_laws.py self-test                finds the broken laws in histories made by hand

The laws, each named as it is printed:

  R1  A start leaves no more claims of a limit, and no more hosts between start and end, than the
      record of its rollout allows. Each of these hosts holds its claims.
  R2  No start stands beside a freeze or pause of its host, a halt, a closed stage or a newer instruction.
  R3  No start beside more failed hosts than the budget; at most budget and limit hosts are unproven.
  R4  A claim ends by its host, by whoever finds that host lost, or by an operator; not by time.
  R5  `unfreeze` alone removes a freeze and `rollout resume` a pause; nobody writes over one.
  R6  A stage opens, and a rollout ends, only when all hosts before are settled; a stage after its soak.
  I17 A host is listed under one version, which it announces, and not while it is updated.

A host that was off its old version already, and one that never had a version, need no claim and no stage.
"""

import collections
import json
import re
import sys

import record

Entry = collections.namedtuple("Entry", "value create mod lease")
ROLLOUT = "/orchestrate/rollouts/"
# A host that vanished this many seconds before must be known to whoever opens a stage or ends a rollout: no comparison
# sees that a key is gone, so what was read a moment ago may be written.
KNOWN_WITHIN = 30
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text):
    """The length of a text like 1h30m."""
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text or ""))


def id_of(epoch, revision):
    return f"{epoch:010}-{revision:019}"


class Start:
    """A host between its start and its end."""

    def __init__(self, rollout, left, is_counted):
        self.rollout = rollout
        # The version under which it was listed before.
        self.left = left
        # True if an acceptance of the store came since: the host may have gone on in what was lost.
        self.may_be_old = False
        # False if it needs no claim, or if somebody else ended its claims by right.
        self.is_counted = is_counted
        self.limits = []


class Checker:
    def __init__(self, reads=()):
        self.state = {}
        self.violations = []
        self.counts = collections.Counter()
        self.reads = sorted((read["asked"], read["read"]) for read in reads)
        self.next_read = 0
        self.latest_before = 0.0
        # When each revision was committed: not before the first time, and not after the second one.
        self.times = {}
        self.running = {}
        # True if the host has the version that it proved last, False if it is off that version.
        self.is_whole = {}
        # Per rollout: the hosts that left a version for it, and the highest concurrency allowed so far.
        self.left = collections.defaultdict(set)
        self.concurrency = collections.defaultdict(int)
        self.ended_timers = {}
        # The revisions at which the agents of hosts were gone.
        self.gone = {}
        # Hosts that were listed when an acceptance of the store came, and have not announced a version since: they may
        # have started in what was lost.
        self.maybe_started = set()

    # What stands in the store.

    def get(self, key, state=None):
        return (self.state if state is None else state).get(key)

    def json(self, key, state=None):
        entry = self.get(key, state)
        if entry is None:
            return None
        try:
            value = json.loads(entry.value)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def under(self, prefix, state=None):
        state = self.state if state is None else state
        return {key[len(prefix):]: entry for key, entry in state.items() if key.startswith(prefix)}

    def roster(self, state):
        hosts = {}
        for host in self.under("/orchestrate/hosts/", state):
            entry = self.json(f"/orchestrate/hosts/{host}", state)
            if not any("decommission" in field for field in entry):
                hosts[host] = entry
        return hosts

    def group_of(self, host, by, state):
        if by == "fleet":
            return "all"
        entry = self.json(f"/orchestrate/hosts/{host}", state) or {}
        if by.startswith("labels."):
            return (entry.get("labels") or {}).get(by[len("labels."):])
        return entry.get(by)

    def limits_of(self, rules, host, state):
        """(by, value, max) of each limit that counts the host."""
        for limit in rules.get("limits", []):
            value = self.group_of(host, limit["by"], state)
            if value is not None:
                yield limit["by"], value, limit.get("values", {}).get(value, limit["max"])

    def stage_of(self, rules, host, state):
        """The number of the stage of a host; None if the store does not say it."""
        stages = rules.get("stages", [])
        for number, stage in enumerate(stages):
            if "count" in stage:
                if host in stage.get("hosts", []):
                    return number
                continue
            if "share" in stage:
                return None
            select = stage.get("select", {})
            if all(self.group_of(host, by, state) in one_or_more(of) for by, of in select.items()):
                return number
        return len(stages)

    def charges(self, rollout, rules, state):
        """The hosts that count as failed."""
        since = rules.get("counted_from", 0)
        failed = self.under(f"{ROLLOUT}{rollout}/failed/", state)
        failed = {h: (e, json.loads(e.value)) for h, e in failed.items()}
        # Whoever was healed and failed again counts from then on.
        begun = {h: (value["again"] or e.mod) if "again" in value else e.create for h, (e, value) in failed.items()}
        return {h for h, (_, value) in failed.items() if begun[h] > since and not value.get("healed")}

    def progress(self, rollout, host, state=None):
        return (self.json(f"/orchestrate/progress/{rollout}/{host}", state) or {}).get("state")

    # One revision.

    def violation(self, law, revision, text, *keys):
        self.violations.append(f"{law} at revision {revision}: {text} [{', '.join(keys)}]")

    def check(self, entry):
        revision, seen = entry["revision"], entry["seen"]
        while self.next_read < len(self.reads) and self.reads[self.next_read][1] < revision:
            self.latest_before = max(self.latest_before, self.reads[self.next_read][0])
            self.next_read += 1
        self.times[revision] = (self.latest_before, seen)
        before = dict(self.state)
        changes = {}
        for event in entry["events"]:
            key = event["key"]
            old = before.get(key)
            if event["value"] is None:
                self.state.pop(key, None)
            else:
                self.state[key] = Entry(event["value"], event["create"], revision, event["lease"])
            changes[key] = (old, self.state.get(key))
            if key.startswith("/orchestrate/live/"):
                self.gone[key.rsplit("/", 1)[1]] = revision if event["value"] is None else None
        self.counts["revisions"] += 1
        verbs = [json.loads(new.value).get("verb", "") for key, (_, new) in changes.items()
                 if key.startswith("/orchestrate/events/") and new]
        if "/orchestrate/store" in changes:
            self.note_acceptance(before)
        self.check_freezes(revision, changes, verbs)
        self.check_records(revision, changes, verbs)
        self.check_ends_of_claims(revision, before, changes, verbs)
        for key, (_, new) in changes.items():
            parts = key.split("/")
            if key.startswith("/orchestrate/progress/") and new and len(parts) == 5:
                if json.loads(new.value)["state"] == "started":
                    self.check_start(revision, before, changes, parts[3], parts[4])
                else:
                    self.counts["ends"] += 1
                    self.running.pop(parts[4], None)
        self.check_unsaid_starts(revision, before, changes)
        self.check_listings(revision, changes)
        self.check_claims(revision, changes)
        self.check_stages(revision, before, changes)
        for key, (old, new) in changes.items():
            if "/soaking/" in key and old and not new:
                self.ended_timers[key] = revision

    def note_acceptance(self, before):
        stores = [self.json("/orchestrate/store", state) or {} for state in (before, self.state)]
        epochs = [store.get("epoch", 0) for store in stores]
        if epochs[0] == epochs[1]:
            return
        self.counts["acceptances"] += 1
        self.is_whole = {}
        listed = (key for key in self.state if key.startswith("/orchestrate/announced/"))
        self.maybe_started = {key.rsplit("/", 1)[1] for key in listed}
        for start in self.running.values():
            start.may_be_old = True

    # R2, R3 and R1.

    def is_taken_over(self, before, rollout, host):
        """True if a host that is being updated goes on under a newer instruction to the same version."""
        if f"/orchestrate/progress/{rollout}/{host}" in before or f"/orchestrate/announced/{host}" in before:
            return False
        running = self.running.get(host)
        version = before["/current_version"].value
        if running and not running.may_be_old:
            rules = self.json(f"{ROLLOUT}{running.rollout}/record") or {}
            if rules.get("version") != version:
                return False
        # A start writes the claims for its own rollout.
        order = (self.json(f"/orchestrate/claimed/{host}") or {}).get("rollout")
        if order:
            return id_of(order["epoch"], order["revision"]) != rollout
        report = self.json(f"/orchestrate/reports/{host}", before) or {}
        verdict = report.get("verdict", {})
        is_at_work = report.get("phase") in ("apply", "converge", "validate")
        return is_at_work and verdict.get("verdict") == "running" and verdict.get("version") == version

    def check_start(self, revision, before, changes, rollout, host):
        own = f"/orchestrate/progress/{rollout}/{host}"
        announced = before.get(f"/orchestrate/announced/{host}")
        running = self.running.get(host)
        left = announced.value if announced else running.left if running else None
        if self.is_taken_over(before, rollout, host):
            self.counts["updates that go on under a newer instruction"] += 1
            self.running[host] = Start(rollout, left, running is not None and running.is_counted)
            self.running[host].limits = running.limits if running else []
            return
        self.counts["starts"] += 1
        if f"/orchestrate/announced/{host}" in self.state:
            self.violation("I17", revision, f"{host} starts and stays on its list", own)
        self.check_brakes(revision, before, rollout, host, own)
        rules = self.json(f"{ROLLOUT}{rollout}/record", before)
        is_same = own in before
        is_whole = True if announced else self.is_whole.get(host)
        if rules is None:
            self.counts["starts without a record"] += 1
            policy = before.get("/orchestrate/rollout_policy")
            governs = policy and policy.create < int(rollout.split("-")[1])
            if governs and json.loads(policy.value).get("limits") and is_whole:
                self.violation("R1", revision, f"{host} starts without a record", own)
            self.running[host] = Start(rollout, left, False)
            return
        if "refused" in rules:
            self.violation("R2", revision, f"{host} starts though the record lets no host start", own)
        is_over = f"{ROLLOUT}{rollout}/ended" in before
        if is_whole and not is_same and not is_over and not rules.get("rollback"):
            self.check_stage_of_start(revision, before, rules, rollout, host, own)
        needs_claims = bool(is_whole or (is_same and is_whole is False))
        budget = rules.get("budget")
        if budget is not None and needs_claims and not is_over:
            failed = self.charges(rollout, rules, before)
            if len(failed) > budget:
                names = " ".join(sorted(failed))
                self.violation("R3", revision, f"{host} starts beside {len(failed)} failed hosts: {names}", own)
        start = Start(rollout, left, needs_claims)
        self.running[host] = start
        self.counts["starts with claims" if needs_claims else "starts without claims"] += 1
        if needs_claims:
            for by, value, most in self.limits_of(rules, host, before):
                start.limits.append((by, value))
                self.check_limit(revision, before, host, by, value, most, own)
        if is_whole:
            self.left[rollout].add(host)
        if budget is not None and needs_claims:
            self.check_exposure(revision, rules, rollout, budget, own)

    def check_unsaid_starts(self, revision, before, changes):
        """A host that leaves its list and says that it applies a version has started."""
        for key, (old, new) in changes.items():
            host = key.rsplit("/", 1)[1]
            report = changes.get(f"/orchestrate/reports/{host}", (None, None))[1]
            if key.startswith("/orchestrate/announced/") and new:
                self.maybe_started.discard(host)
            if not key.startswith("/orchestrate/announced/") or new or not report:
                continue
            content = json.loads(report.value)
            is_start = content.get("phase") == "apply" and content["verdict"].get("verdict") == "running"
            said = any(k.startswith("/orchestrate/progress/") and k.endswith(f"/{host}") for k in changes)
            if not is_start or said:
                continue
            if host in self.maybe_started:
                self.maybe_started.discard(host)
                self.counts["starts in what was lost"] += 1
                continue
            self.counts["starts without progress"] += 1
            epoch = (self.json("/orchestrate/store", before) or {}).get("epoch", 0)
            rollout = id_of(epoch, before["/current_version"].mod)
            self.check_brakes(revision, before, rollout, host, key)
            if f"{ROLLOUT}{rollout}/record" in before:
                self.violation("R1", revision, f"{host} starts and does not say so", key)

    def check_brakes(self, revision, before, rollout, host, own):
        roster = self.json(f"/orchestrate/hosts/{host}", before) or {}
        scopes = ["fleet", "pause", f"host/{host}"]
        scopes += [f"{by}/{roster[by]}" for by in ("role", "group") if roster.get(by)]
        for key in sorted(before.keys() | self.state.keys()):
            if any(key.startswith(f"/orchestrate/freezes/{scope}/") for scope in scopes):
                self.violation("R2", revision, f"{host} starts beside a freeze", own, key)
        halt = f"{ROLLOUT}{rollout}/halt"
        if halt in before:
            self.violation("R2", revision, f"{host} starts in a halted rollout", own, halt)
        desired = before.get("/current_version")
        epoch = (self.json("/orchestrate/store", before) or {}).get("epoch", 0)
        if desired is None or id_of(epoch, desired.mod) != rollout:
            self.violation("R2", revision, f"{host} starts beside another instruction", own, "/current_version")

    def check_stage_of_start(self, revision, before, rules, rollout, host, own):
        stage = self.stage_of(rules, host, before)
        if stage is None:
            self.counts["starts in unknown stages"] += 1
        elif stage > 0:
            opened = self.under(f"{ROLLOUT}{rollout}/opened/", before)
            if not any(int(number) >= stage for number in opened):
                self.violation("R2", revision, f"{host} starts before stage {stage} is open", own)
            self.counts["starts in later stages"] += 1

    def check_limit(self, revision, before, host, by, value, most, own):
        prefix = f"/orchestrate/claims/{by}/{value}/"
        held_before = any(json.loads(e.value)["host"] == host for e in self.under(prefix, before).values())
        if held_before:
            # It tries again on what it holds, whoever else holds some.
            self.counts["starts on claims held before"] += 1
            return
        claims = self.under(prefix)
        if len(claims) > most or any(int(number) >= most for number in claims):
            text = f"{host} starts with {len(claims)} claims of {by} {value}, {most} allowed"
            self.violation("R1", revision, text, own, *(prefix + number for number in sorted(claims)))
        busy = sorted(h for h, start in self.running.items() if start.is_counted
                      and self.group_of(h, by, self.state) == value)
        if len(busy) > most:
            text = f"{len(busy)} hosts of {by} {value} are updated, {most} allowed: {' '.join(busy)}"
            self.violation("R1", revision, text, own)
        self.counts["limits of starts"] += 1
        if len(busy) == most:
            self.counts["limits of starts that were then full"] += 1

    def check_exposure(self, revision, rules, rollout, budget, own):
        totals = []
        for limit in rules.get("limits", []):
            hosts = self.roster(self.state)
            values = {self.group_of(host, limit["by"], self.state) for host in hosts}
            if None not in values:
                totals.append(sum(limit.get("values", {}).get(v, limit["max"]) for v in values))
        if not totals:
            return
        self.concurrency[rollout] = max(self.concurrency[rollout], min(totals))
        since = rules.get("counted_from", 0)
        forgiven = {h for h, e in self.under(f"{ROLLOUT}{rollout}/failed/").items() if e.create <= since}
        unproven = {h for h in self.left[rollout] if self.progress(rollout, h) != "proven"} - forgiven
        most = budget + self.concurrency[rollout]
        if len(unproven) > most:
            text = f"{len(unproven)} hosts are off their version, {most} allowed: {' '.join(sorted(unproven))}"
            self.violation("R3", revision, text, own)
        self.counts["exposures"] += 1

    # R4, and the second half of R1.

    def check_ends_of_claims(self, revision, before, changes, verbs):
        ended = collections.defaultdict(list)
        for key, (old, new) in changes.items():
            if key.startswith("/orchestrate/claims/") or key.startswith("/orchestrate/claimed/"):
                if new and new.lease:
                    self.violation("R4", revision, "a claim hangs on a lease", key)
            if key.startswith("/orchestrate/claims/") and old and new is None:
                ended[json.loads(old.value)["host"]].append(key)
            if key.startswith("/orchestrate/claims/") and old and new:
                hosts = [json.loads(entry.value)["host"] for entry in (old, new)]
                if hosts[0] != hosts[1]:
                    self.violation("R4", revision, f"{hosts[1]} takes the claim of {hosts[0]}", key)
            if key.startswith("/orchestrate/claimed/") and new and json.loads(new.value).get("lost"):
                if not (old and json.loads(old.value).get("lost")):
                    ended[key.split("/")[3]].append(key)
        for host, keys in ended.items():
            # A claim that moves to another number does not end.
            moved = [key for key in keys if key.startswith("/orchestrate/claims/") and any(
                json.loads(e.value)["host"] == host for e in self.under(key.rsplit("/", 1)[0] + "/").values())]
            self.counts["claims moved"] += len(moved)
            keys = [key for key in keys if key not in moved]
            if keys:
                self.check_end_of_claims(revision, before, changes, verbs, host, keys)

    def check_end_of_claims(self, revision, before, changes, verbs, host, keys):
        start = self.running.get(host)
        if any(verb in ("claims release", "hosts decommission") for verb in verbs):
            self.counts["claims ended by an operator"] += len(keys)
            if start:
                start.is_counted = False
            return
        charges = [key for key, (_, new) in changes.items() if key.startswith(ROLLOUT)
                   and key.endswith(f"/failed/{host}") and new and json.loads(new.value).get("kind") == "lost"]
        mark = f"/orchestrate/lost/mark/{host}"
        live = before.get(f"/orchestrate/live/{host}")
        is_reaping = bool(charges) or (mark in changes and changes[mark][1] is None and live is None)
        if not is_reaping and live is not None:
            self.counts["claims ended by their host"] += len(keys)
            return
        if not is_reaping:
            self.violation("R4", revision, f"the claims of {host} end, which does not run, by nobody's word", *keys)
            return
        self.counts["claims ended by reaping"] += len(keys)
        if start:
            start.is_counted = False
        claimed = self.json(f"/orchestrate/claimed/{host}", before) or {}
        if live is not None:
            if json.loads(live.value).get("instance") == claimed.get("instance"):
                self.violation("R4", revision, f"{host} is lost though it runs", *keys)
            return
        marked = before.get(mark)
        if marked is None:
            self.violation("R4", revision, f"{host} is lost and was not marked", *keys)
            return
        if not json.loads(marked.value).get("timed"):
            self.violation("R4", revision, f"{host} is lost and its timer was not started", *keys)
        if f"/orchestrate/lost/timer/{host}" in before:
            self.violation("R4", revision, f"{host} is lost before its timer ended", *keys)
        longest = self.times[revision][1] - self.times[marked.mod][0]
        if longest < seconds(claimed.get("lost_after")):
            self.violation("R4", revision, f"{host} is lost after {longest:.1f} s", *keys)

    def check_claims(self, revision, changes):
        touched = {key.split("/")[3] for key in changes if key.startswith("/orchestrate/claimed/")}
        for key, entries in changes.items():
            if key.startswith("/orchestrate/claims/"):
                touched |= {json.loads(entry.value)["host"] for entry in entries if entry}
        if touched:
            claims = self.under("/orchestrate/claims/")
        for host in touched:
            claimed = (self.json(f"/orchestrate/claimed/{host}") or {}).get("claims", [])
            said = {f"{claim['by']}/{claim['value']}/{claim['number']:05}" for claim in claimed}
            held = {key for key, entry in claims.items() if json.loads(entry.value)["host"] == host}
            self.counts["sets of claims"] += 1
            if said != held:
                text = f"{host} says that it claims {sorted(said)}, and claims {sorted(held)}"
                self.violation("R1", revision, text, f"/orchestrate/claimed/{host}")
        for host, start in self.running.items():
            for by, value in start.limits if start.is_counted else ():
                prefix = f"/orchestrate/claims/{by}/{value}/"
                if not any(json.loads(e.value)["host"] == host for e in self.under(prefix).values()):
                    self.violation("R1", revision, f"{host} is updated without a claim of {by} {value}",
                                   f"/orchestrate/progress/{start.rollout}/{host}")
                    start.is_counted = False

    # I17.

    def check_listings(self, revision, changes):
        touched = {key.split("/")[3] for key in changes
                   if key.startswith("/running_version/") or key.startswith("/orchestrate/announced/")}
        for host in touched:
            listed = [key.split("/")[2] for key in self.state
                      if key.startswith("/running_version/") and key.endswith(f"/{host}")]
            announced = self.get(f"/orchestrate/announced/{host}")
            said = [announced.value] if announced else []
            if listed != said:
                text = f"{host} is listed under {listed} and announces {said}"
                self.violation("I17", revision, text, f"/orchestrate/announced/{host}")
            self.counts["listings"] += 1
            if listed and host in self.running:
                start = self.running.pop(host)
                record_of = self.json(f"{ROLLOUT}{start.rollout}/record") or {}
                if listed[0] == start.left:
                    # Its journal does not know the start, so that no step of it has begun.
                    self.counts["starts taken back"] += 1
                    self.left[start.rollout].discard(host)
                elif record_of.get("version") in (listed[0], None):
                    # The store went back to before the host noted its end.
                    self.counts["ends without a note"] += 1
                else:
                    text = f"{host} is listed before its end"
                    self.violation("I17", revision, text, f"/running_version/{listed[0]}/{host}")
            if listed:
                self.is_whole[host] = True
        for host in touched | {key.split("/")[3] for key in changes if key.startswith("/orchestrate/reports/")}:
            if host in self.running:
                self.is_whole[host] = False
            elif host in touched and self.get(f"/orchestrate/announced/{host}") is None:
                report = changes.get(f"/orchestrate/reports/{host}")
                if report and report[1]:
                    # It took itself off its list: its validation failed, or the store does not say why.
                    failed = f"/status/validation/failed/{host}" in self.state
                    self.is_whole[host] = False if failed else None

    # R5.

    def check_freezes(self, revision, changes, verbs):
        for key, (old, new) in changes.items():
            if not key.startswith("/orchestrate/freezes/"):
                continue
            if old and new:
                self.violation("R5", revision, "a freeze is written over", key)
            if new is None and old:
                is_pause = key.startswith("/orchestrate/freezes/pause/")
                by_right = any(verb == "rollout resume" if is_pause else verb.split(" ")[0] == "unfreeze"
                               for verb in verbs)
                by_time = old.lease and len(changes) == len(
                    [k for k, (o, n) in changes.items() if n is None and o and o.lease == old.lease])
                if not by_right and not by_time:
                    self.violation("R5", revision, f"a freeze ends by {verbs or 'nobody'}", key)
                self.counts["ends of freezes"] += 1

    def check_records(self, revision, changes, verbs):
        for key, (old, new) in changes.items():
            if not (key.startswith(ROLLOUT) and key.endswith("/record")) or not new:
                continue
            self.counts["records written"] += 1
            if old:
                numbers = [[json.loads(e.value).get(f) for f in ("limits", "budget", "counted_from")] for e in (old, new)]
                if numbers[0] != numbers[1] and not any(v.startswith("rollout ") for v in verbs):
                    self.violation("R1", revision, f"the numbers of a record change by {verbs or 'nobody'}", key)

    # R6.

    def check_stages(self, revision, before, changes):
        for key, (old, new) in changes.items():
            parts = key.split("/")
            if not key.startswith(ROLLOUT) or old or not new:
                continue
            rollout = parts[3]
            rules = self.json(f"{ROLLOUT}{rollout}/record", before) or {}
            if parts[4] == "opened" and int(parts[5]) > 0:
                self.counts["stages opened"] += 1
                self.check_settled(revision, before, rules, rollout, int(parts[5]), key)
                self.check_soak(revision, before, rules, rollout, int(parts[5]) - 1, key)
            elif parts[4] == "ended":
                self.counts["rollouts ended"] += 1
                self.check_settled(revision, before, rules, rollout, None, key)

    def check_settled(self, revision, before, rules, rollout, stage, key):
        """Checks that the hosts before a stage are settled; for no stage, those of the whole rollout."""
        at = before[f"{ROLLOUT}{rollout}/record"].create
        members = collections.defaultdict(list)
        for host in self.roster(before):
            number = self.stage_of(rules, host, before)
            joined = before[f"/orchestrate/hosts/{host}"].create
            if number is not None and joined <= at and (stage is None or number < stage):
                members[number].append(host)
        charges = self.charges(rollout, rules, before)
        budget = rules.get("budget")
        if budget is not None and len(charges) > budget:
            self.violation("R6", revision, f"it opens beside {len(charges)} failed hosts", key)
        some_proven = False
        for number, hosts in sorted(members.items()):
            proven = [host for host in hosts if self.progress(rollout, host, before) == "proven"
                      or self.is_announced(host, rules["version"], before)]
            proven = [host for host in proven if not self.has_vanished(revision, rollout, host, before)]
            excused = [host for host in hosts if f"{ROLLOUT}{rollout}/excused/{host}" in before]
            stages = rules.get("stages", [])
            is_chosen = number < len(stages) and "count" in stages[number] and stage is not None
            absent = []
            for host in hosts:
                if host in proven or host in excused:
                    continue
                claimed = self.json(f"/orchestrate/claimed/{host}", before)
                state = self.progress(rollout, host, before)
                failed = self.json(f"{ROLLOUT}{rollout}/failed/{host}", before) or {}
                is_lost = failed.get("kind") == "lost" and (claimed is None or claimed.get("lost"))
                is_off = f"/orchestrate/live/{host}" not in before and claimed is None
                if is_off and state is None:
                    absent.append(host)
                is_left = is_off and (state is None or stage is None and state != "proven")
                if is_chosen or not (state == "gave_up" or is_lost or is_left):
                    self.violation("R6", revision, f"{host} of stage {number} is not settled ({state})", key)
            self.counts["hosts found settled"] += len(hosts)
            some_proven = some_proven or bool(proven)
            is_last = stage is not None and number == stage - 1
            if is_last and not proven and set(hosts) - set(excused) - set(absent):
                self.violation("R6", revision, f"no host of stage {number} is proven", key)
        if stage is None and not some_proven:
            self.violation("R6", revision, "a rollout ends in which no host is proven", key)

    def has_vanished(self, revision, rollout, host, before):
        """True if the agent of a host has not run for a while, and no operator said that the host may be off."""
        progress = self.json(f"/orchestrate/progress/{rollout}/{host}", before) or {}
        gone = self.gone.get(host)
        if not progress.get("agent") or f"/orchestrate/live/{host}" in before or not gone:
            return False
        mark = (self.json(f"/orchestrate/maintenance/{host}", before) or {}).get("host") or {}
        least = self.times[revision][0] - self.times[gone][1]
        return least > KNOWN_WITHIN and mark.get("how") != "maintenance"

    def is_announced(self, host, version, state):
        announced = state.get(f"/orchestrate/announced/{host}")
        return announced is not None and announced.value == version

    def check_soak(self, revision, before, rules, rollout, stage, key):
        if f"{ROLLOUT}{rollout}/halt" in before:
            self.violation("R6", revision, "a stage of a halted rollout opens", key)
        members = [h for h in self.roster(before) if self.stage_of(rules, h, before) == stage]
        needed = seconds(rules["stages"][stage].get("soak"))
        if not members or not needed:
            return
        soak = before.get(f"{ROLLOUT}{rollout}/soak/{stage}")
        timer = f"{ROLLOUT}{rollout}/soaking/{stage}"
        if soak is None:
            self.violation("R6", revision, f"stage {stage} was not observed", key)
            return
        # The last write of the key only says that its timer runs.
        begun = soak.create
        if timer in before or self.ended_timers.get(timer, 0) < begun:
            self.violation("R6", revision, f"the timer of stage {stage} has not ended", key, timer)
        longest = self.times[revision][1] - self.times[begun][0]
        if longest < needed:
            self.violation("R6", revision, f"stage {stage} was observed for {longest:.1f} s", key)
        for host, failed in self.under(f"{ROLLOUT}{rollout}/failed/", before).items():
            if failed.create > begun:
                self.violation("R6", revision, f"{host} failed while stage {stage} was observed", key)
        self.counts["soaks"] += 1


def one_or_more(value):
    return value if isinstance(value, list) else [value]


def check(path):
    revisions, reads = record.load(path)
    checker = Checker(reads)
    for entry in revisions:
        checker.check(entry)
    for violation in checker.violations:
        print(violation)
    print(json.dumps(dict(sorted(checker.counts.items()))))
    return 1 if checker.violations else 0


def main(arguments):
    match arguments:
        case ["record", endpoints, path]:
            record.Recorder(endpoints.split(","), path).run()
        case ["check", path]:
            return check(path)
        case ["self-test"]:
            import histories
            return histories.run(Checker)
    print(__doc__, file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
