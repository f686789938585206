"""Histories made by hand: some keep the laws, each of the others breaks one, which must be found."""

import json

EMPTY = object()


class Story:
    """A store of two roles, whose hosts a1, a2, b1 and b2 run version 1. One revision takes a second."""

    def __init__(self):
        self.revision, self.now, self.created, self.entries = 0, 0.0, {}, []
        self.epoch = 0
        self.write({"/current_version": "1"})
        self.write({"/orchestrate/store": {"lineage": "l", "epoch": 0}})
        for host in ("a1", "a2", "b1", "b2"):
            self.write({f"/orchestrate/live/{host}": {"instance": f"i-{host}"}}, lease=7)
            self.write({f"/orchestrate/hosts/{host}": {"since": 1, "role": host[0]}})
            self.write({f"/running_version/1/{host}": "1", f"/orchestrate/announced/{host}": "1"}, lease=7)
        self.write({"/orchestrate/rollout_policy": {"limits": [{"by": "fleet", "max": 2}]}})

    def write(self, changes, lease=0, takes=1.0, verb=None):
        """Commits one revision; a value of None deletes."""
        self.revision += 1
        self.now += takes
        if verb:
            changes = changes | {f"/orchestrate/events/{self.revision}": {"verb": verb}}
        events = []
        for key, value in changes.items():
            if value is None:
                self.created.pop(key, None)
            else:
                self.created.setdefault(key, self.revision)
            text = value if value is None or isinstance(value, str) else json.dumps(value)
            create = 0 if value is None else self.created[key]
            events.append({"key": key, "value": text, "lease": lease, "create": create})
        self.entries.append({"revision": self.revision, "seen": self.now, "events": events})
        return self.revision

    def reads(self):
        """A read just before each revision, so that the times are known to a hundredth."""
        return [{"read": e["revision"] - 1, "asked": e["seen"] - 0.01} for e in self.entries]

    def trigger(self, version, **rules):
        at = self.write({"/current_version": version}, verb="trigger_update")
        self.rollout = f"{self.epoch:010}-{at:019}"
        record = {"version": version, "limits": [{"by": "fleet", "max": 2}], "lost_after": "5s", "budget": 1}
        self.write({self.key("record"): record | rules})

    def key(self, name):
        return f"/orchestrate/rollouts/{self.rollout}/{name}"

    def claim(self, host, number, by="fleet", value="all"):
        return {
            f"/orchestrate/claims/{by}/{value}/{number:05}": {"host": host, "instance": f"i-{host}"},
            f"/orchestrate/claimed/{host}": {
                "instance": f"i-{host}",
                "lost_after": "5s",
                "rollout": {"epoch": self.epoch, "revision": int(self.rollout.split("-")[1])},
                "claims": [{"by": by, "value": value, "number": number}],
            },
        }

    def no_claim(self, host, number):
        return {f"/orchestrate/claims/fleet/all/{number:05}": None, f"/orchestrate/claimed/{host}": None}

    def progress(self, host, state):
        return {f"/orchestrate/progress/{self.rollout}/{host}": {"state": state, "agent": True}}

    def unlisted(self, host, version="1"):
        return {f"/running_version/{version}/{host}": None, f"/orchestrate/announced/{host}": None}

    def start(self, host, number, claim=EMPTY, **given):
        claim = self.claim(host, number) if claim is EMPTY else claim
        self.write(self.progress(host, "started") | self.unlisted(host) | claim, **given)

    def prove(self, host, number, version="2"):
        listing = {f"/running_version/{version}/{host}": "1", f"/orchestrate/announced/{host}": version}
        self.write(self.progress(host, "proven") | listing | self.no_claim(host, number))

    def give_up(self, host, number):
        charge = {self.key(f"failed/{host}"): {"kind": "attempt"}}
        self.write(self.progress(host, "gave_up") | self.no_claim(host, number) | charge)

    def mark(self, host):
        self.write({f"/orchestrate/live/{host}": None})
        self.write({f"/orchestrate/lost/mark/{host}": {"by": "b1"}})
        timed = {f"/orchestrate/lost/mark/{host}": {"by": "b1", "timed": True}}
        self.write(timed | {f"/orchestrate/lost/timer/{host}": ""}, lease=8)

    def reap(self, host, number, takes=6.0):
        self.write({f"/orchestrate/lost/timer/{host}": None}, takes=takes)
        charge = {self.key(f"failed/{host}"): {"kind": "lost"}, f"/orchestrate/lost/mark/{host}": None}
        self.write(self.no_claim(host, number) | charge)

    STAGES = {"stages": [{"name": "canary", "count": 1, "hosts": ["a1"], "soak": "5s"}]}

    def soak(self, takes=6.0):
        self.write({self.key("soak/0"): {"by": "a1"}})
        self.write({self.key("soaking/0"): "a1"}, lease=9)
        self.write({self.key("soaking/0"): None}, takes=takes)

    def open(self):
        self.write({self.key("opened/1"): {"by": "a1"}})


def a_rollout(s):
    s.trigger("2")
    s.start("a1", 0)
    s.start("b1", 1)
    s.prove("a1", 0)
    s.start("a2", 0)
    s.give_up("b1", 1)
    s.start("b2", 1)
    s.prove("b2", 1)
    s.prove("a2", 0)
    s.write({s.key("ended"): {"by": "a2"}})


def a_fix_reaches_hosts_that_failed_beside_a_full_limit(s):
    s.trigger("2", budget=5)
    s.start("a1", 0)
    s.give_up("a1", 0)
    s.start("a2", 0)
    s.start("b1", 1)
    s.trigger("3")
    s.write(s.progress("a1", "started"))
    s.write(s.progress("a2", "started") | s.claim("a2", 0))


def a_canary(s):
    s.trigger("2", **s.STAGES)
    s.start("a1", 0)
    s.prove("a1", 0)
    s.soak()
    s.open()
    s.start("b1", 0)


def a_host_is_lost(s):
    s.trigger("2")
    s.start("a1", 0)
    s.mark("a1")
    s.reap("a1", 0)
    s.start("b1", 0)
    s.start("b2", 1)


def an_operator_releases_claims(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write(s.no_claim("a1", 0), verb="claims release")


def freezes_end_by_their_verbs_and_by_their_time(s):
    s.write({"/orchestrate/freezes/fleet/t": {"by": "ann"}, "/orchestrate/freezes/pause/u": {"by": "ann"}})
    s.write({"/orchestrate/freezes/host/a1/v": {"by": "ann"}}, lease=5)
    s.write({"/orchestrate/freezes/fleet/t": None}, verb="unfreeze")
    s.write({"/orchestrate/freezes/pause/u": None}, verb="rollout resume")
    s.write({"/orchestrate/freezes/host/a1/v": None})


def numbers_are_lowered_and_the_old_holders_go_on(s):
    s.trigger("2")
    s.start("a1", 0)
    s.start("b1", 1)
    s.write({s.key("record"): {"version": "2", "limits": [{"by": "fleet", "max": 1}]}}, verb="rollout set")
    s.prove("a1", 0)


def three_hosts_where_two_may_be(s):
    s.trigger("2")
    for number, host in enumerate(("a1", "a2", "b1")):
        s.start(host, number)


def a_number_above_a_lowered_limit(s):
    s.trigger("2")
    s.start("a1", 1)
    s.write({s.key("record"): {"version": "2", "limits": [{"by": "fleet", "max": 1}]}}, verb="rollout set")
    s.start("a2", 0)


def a_start_without_a_claim(s):
    s.trigger("2")
    s.start("a1", 0, claim={})


def a_start_without_the_claim_of_its_role(s):
    s.trigger("2", limits=[{"by": "role", "max": 1, "values": {"a": 2}}])
    s.start("a1", 0)


def a_host_that_fails_takes_no_claim_for_its_next_attempt(s):
    s.trigger("2")
    s.start("a1", 0)
    s.give_up("a1", 0)
    s.write(s.progress("a1", "started"))


def a_claim_ends_between_start_and_end(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write(s.no_claim("a1", 0))


def a_host_names_other_claims_than_it_has(s):
    s.trigger("2")
    s.start("a1", 0, claim=s.claim("a1", 0) | {"/orchestrate/claimed/a1": {"claims": []}})


def nobody_changes_the_numbers(s):
    s.trigger("2")
    s.write({s.key("record"): {"version": "2", "limits": [{"by": "fleet", "max": 9}]}})


def a_start_without_a_record(s):
    s.write({"/current_version": "2"})
    s.rollout = f"{0:010}-{s.revision:019}"
    s.start("a1", 0)


def frozen(scope):
    def story(s):
        s.trigger("2")
        s.write({f"/orchestrate/freezes/{scope}/t": {"by": "ann"}})
        s.start("a1", 0)
    return story


def another_role_is_frozen(s):
    frozen("role/b")(s)


def a_halt(s):
    s.trigger("2")
    s.write({s.key("halt"): {"by": "b1"}})
    s.start("a1", 0)


def a_newer_instruction(s):
    s.trigger("2")
    s.write({"/current_version": "3"})
    s.start("a1", 0)


def the_instruction_of_an_older_epoch(s):
    s.trigger("2")
    s.write({"/orchestrate/store": {"lineage": "l", "epoch": 1}})
    s.start("a1", 0)


def a_closed_stage(s):
    s.trigger("2", **s.STAGES)
    s.start("b1", 0)


def a_refused_record(s):
    s.trigger("2", refused="too large")
    s.start("a1", 0)


def more_failed_hosts_than_the_budget(s):
    s.trigger("2")
    for host in ("a1", "a2"):
        s.start(host, 0)
        s.give_up(host, 0)
    s.start("b1", 0)


def more_hosts_off_their_version_than_budget_and_limit(s):
    # Nobody counts these failures.
    s.trigger("2", budget=0)
    for host in ("a1", "a2", "b1"):
        s.start(host, 0)
        s.write(s.progress(host, "gave_up") | s.no_claim(host, 0))


def a_claim_on_a_lease(s):
    s.trigger("2")
    s.start("a1", 0, lease=7)


def a_claim_ends_with_the_agent(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write({"/orchestrate/live/a1": None})
    s.write(s.no_claim("a1", 0))


def a_host_takes_the_claim_of_another(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write(s.claim("b1", 0) | s.progress("b1", "started") | s.unlisted("b1"))


def a_host_that_runs_is_lost(s):
    s.trigger("2")
    s.start("a1", 0)
    s.mark("a1")
    s.write({"/orchestrate/live/a1": {"instance": "i-a1"}})
    s.reap("a1", 0)


def a_host_is_lost_without_a_mark(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write({"/orchestrate/live/a1": None})
    s.reap("a1", 0)


def a_host_is_lost_too_early(s):
    s.trigger("2")
    s.start("a1", 0)
    s.mark("a1")
    s.reap("a1", 0, takes=1.0)


def a_host_is_lost_before_its_timer_ends(s):
    s.trigger("2")
    s.start("a1", 0)
    s.mark("a1")
    s.write({"/orchestrate/elsewhere": ""}, takes=9.0)
    charge = {s.key("failed/a1"): {"kind": "lost"}, "/orchestrate/lost/mark/a1": None}
    s.write(s.no_claim("a1", 0) | charge)


def a_host_is_lost_though_nobody_started_its_timer(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write({"/orchestrate/live/a1": None})
    s.write({"/orchestrate/lost/mark/a1": {"by": "b1"}})
    s.write({"/orchestrate/elsewhere": ""}, takes=9.0)
    charge = {s.key("failed/a1"): {"kind": "lost"}, "/orchestrate/lost/mark/a1": None}
    s.write(s.no_claim("a1", 0) | charge)


def thawed(scope, verb):
    def story(s):
        s.write({f"/orchestrate/freezes/{scope}/t": {"by": "ann"}})
        s.write({f"/orchestrate/freezes/{scope}/t": None}, verb=verb)
    return story


def a_freeze_is_written_over(s):
    for by in ("ann", "bob"):
        s.write({"/orchestrate/freezes/fleet/t": {"by": by}})


def a_stage_opens_before_its_hosts_are_done(s):
    s.trigger("2", **s.STAGES)
    s.start("a1", 0)
    s.soak()
    s.open()


def vanishes_after_its_proof(s, canary="a1"):
    """A canary is proven, and its machine is gone some time later."""
    s.trigger("2", **s.STAGES)
    s.start(canary, 0)
    s.prove(canary, 0)
    s.write({f"/orchestrate/live/{canary}": None} | s.unlisted(canary, "2"))
    s.soak(takes=40.0)


def a_stage_opens_though_its_canary_vanished_after_its_proof(s):
    vanishes_after_its_proof(s)
    s.open()


def a_stage_opens_though_its_canary_vanished_and_counts(s):
    vanishes_after_its_proof(s)
    s.write({s.key("failed/a1"): {"kind": "lost"}})
    s.soak()
    s.open()


def a_rollout_ends_though_a_host_vanished_after_its_proof(s):
    s.trigger("2")
    for host in ("a1", "a2", "b1", "b2"):
        s.start(host, 0)
        s.prove(host, 0)
    s.write({"/orchestrate/live/a1": None} | s.unlisted("a1", "2"))
    s.write({"/other": "1"}, takes=40.0)
    s.write({s.key("ended"): {"by": "b1"}})


def a_canary_that_vanished_is_in_maintenance(s):
    vanishes_after_its_proof(s)
    s.write({"/orchestrate/maintenance/a1": {"host": {"how": "maintenance"}}})
    s.soak()
    s.open()


def a_host_that_vanished_after_its_proof_counts(s):
    s.trigger("2")
    for host in ("a1", "a2", "b1", "b2"):
        s.start(host, 0)
        s.prove(host, 0)
    s.write({"/orchestrate/live/a1": None} | s.unlisted("a1", "2"))
    s.write({s.key("failed/a1"): {"kind": "lost"}}, takes=40.0)
    s.write({s.key("ended"): {"by": "b1"}})


def a_stage_opens_after_a_canary_that_failed(s):
    s.trigger("2", **s.STAGES)
    s.start("a1", 0)
    s.give_up("a1", 0)
    s.soak()
    s.open()


def a_stage_opens_without_a_soak(s):
    s.trigger("2", **s.STAGES)
    s.start("a1", 0)
    s.prove("a1", 0)
    s.open()


def a_stage_opens_too_early(s):
    s.trigger("2", **s.STAGES)
    s.start("a1", 0)
    s.prove("a1", 0)
    s.soak(takes=1.0)
    s.open()


def a_stage_opens_while_its_timer_runs(s):
    s.trigger("2", **s.STAGES)
    s.start("a1", 0)
    s.prove("a1", 0)
    s.write({s.key("soak/0"): {"by": "a1"}})
    s.write({s.key("soaking/0"): "a1"}, lease=9)
    s.write({"/orchestrate/elsewhere": ""}, takes=9.0)
    s.open()


def a_stage_opens_though_a_host_failed_meanwhile(s):
    s.trigger("2", **s.STAGES)
    s.start("a1", 0)
    s.prove("a1", 0)
    s.soak()
    s.write({s.key("failed/a1"): {"kind": "withdrawal"}})
    s.open()


def a_rollout_ends_beside_a_host_that_waits(s):
    s.trigger("2")
    s.start("a1", 0)
    s.prove("a1", 0)
    s.write({s.key("ended"): {"by": "a1"}})


def a_rollout_ends_in_which_nobody_is_proven(s):
    s.trigger("2", budget=9)
    for host in ("a1", "a2", "b1", "b2"):
        s.start(host, 0)
        s.give_up(host, 0)
    s.write({s.key("ended"): {"by": "a1"}})


def a_host_is_listed_twice(s):
    s.write({"/running_version/2/a1": "1"})


def a_host_is_listed_while_it_is_updated(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write({"/running_version/7/a1": "1", "/orchestrate/announced/a1": "7"})


def a_start_whose_answer_was_lost_is_taken_back(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write({"/running_version/1/a1": "1", "/orchestrate/announced/a1": "1"} | s.no_claim("a1", 0))
    s.start("b1", 0)
    s.start("b2", 1)


def a_host_starts_and_stays_on_its_list(s):
    s.trigger("2")
    s.write(s.progress("a1", "started") | s.claim("a1", 0))


def applies(version):
    return {"phase": "apply", "verdict": {"verdict": "running", "version": version}}


def a_host_starts_and_does_not_say_so(s):
    s.trigger("2")
    s.write(s.unlisted("a1") | {"/orchestrate/reports/a1": applies("2")})


def a_frozen_host_starts_where_there_is_no_record(s):
    s.write({"/orchestrate/rollout_policy": {"limits": []}})
    s.write({"/orchestrate/freezes/fleet/t": {"by": "ann"}})
    s.write({"/current_version": "2"})
    s.write(s.unlisted("a1") | {"/orchestrate/reports/a1": applies("2")})


def accepted(s):
    """The store was restored from a snapshot and accepted; a1 had started in what was lost."""
    s.write({"/current_version": "2"})
    freeze = {"/orchestrate/freezes/fleet/accept-1": {"by": "ann"}}
    s.write({"/orchestrate/store": {"lineage": "l", "epoch": 1}} | freeze)
    s.write(s.unlisted("a1") | {"/orchestrate/reports/a1": applies("2")})


def a_host_says_after_an_acceptance_that_it_had_started(s):
    accepted(s)


def a_host_starts_once_more_after_an_acceptance(s):
    accepted(s)
    s.write({"/running_version/1/a1": "1", "/orchestrate/announced/a1": "1"}, lease=7)
    s.write(s.unlisted("a1") | {"/orchestrate/reports/a1": applies("2")})


def an_update_goes_on_when_its_version_is_triggered_again(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write({"/orchestrate/freezes/fleet/t": {"by": "ann"}})
    s.trigger("2")
    s.write(s.progress("a1", "started"))


def a_frozen_host_that_is_updated_starts_a_newer_version(s):
    s.trigger("2")
    s.start("a1", 0)
    s.write({"/orchestrate/freezes/fleet/t": {"by": "ann"}})
    s.trigger("3")
    s.write(s.progress("a1", "started"))


def a_start_that_was_taken_back_needs_claims_again(s):
    a_start_whose_answer_was_lost_is_taken_back(s)
    s.start("a1", 2)


KEPT = [
    a_rollout,
    a_fix_reaches_hosts_that_failed_beside_a_full_limit,
    a_canary,
    a_host_is_lost,
    an_operator_releases_claims,
    freezes_end_by_their_verbs_and_by_their_time,
    numbers_are_lowered_and_the_old_holders_go_on,
    another_role_is_frozen,
    a_start_whose_answer_was_lost_is_taken_back,
    an_update_goes_on_when_its_version_is_triggered_again,
    a_host_says_after_an_acceptance_that_it_had_started,
    a_canary_that_vanished_is_in_maintenance,
    a_host_that_vanished_after_its_proof_counts,
]

BROKEN = {
    "R1": [
        three_hosts_where_two_may_be,
        a_number_above_a_lowered_limit,
        a_start_without_a_claim,
        a_start_without_the_claim_of_its_role,
        a_host_that_fails_takes_no_claim_for_its_next_attempt,
        a_claim_ends_between_start_and_end,
        a_host_names_other_claims_than_it_has,
        nobody_changes_the_numbers,
        a_start_without_a_record,
        a_start_that_was_taken_back_needs_claims_again,
        a_host_starts_and_does_not_say_so,
    ],
    "R2": [
        frozen("fleet"),
        frozen("role/a"),
        frozen("host/a1"),
        frozen("pause"),
        a_halt,
        a_newer_instruction,
        the_instruction_of_an_older_epoch,
        a_closed_stage,
        a_refused_record,
        a_frozen_host_that_is_updated_starts_a_newer_version,
        a_frozen_host_starts_where_there_is_no_record,
        a_host_starts_once_more_after_an_acceptance,
    ],
    "R3": [more_failed_hosts_than_the_budget, more_hosts_off_their_version_than_budget_and_limit],
    "R4": [
        a_claim_on_a_lease,
        a_claim_ends_with_the_agent,
        a_host_takes_the_claim_of_another,
        a_host_that_runs_is_lost,
        a_host_is_lost_without_a_mark,
        a_host_is_lost_too_early,
        a_host_is_lost_before_its_timer_ends,
        a_host_is_lost_though_nobody_started_its_timer,
    ],
    "R5": [
        thawed("fleet", "rollout resume"),
        thawed("pause", "unfreeze"),
        thawed("role/a", "trigger_update"),
        thawed("fleet", None),
        a_freeze_is_written_over,
    ],
    "R6": [
        a_stage_opens_before_its_hosts_are_done,
        a_stage_opens_after_a_canary_that_failed,
        a_stage_opens_though_its_canary_vanished_after_its_proof,
        a_stage_opens_though_its_canary_vanished_and_counts,
        a_rollout_ends_though_a_host_vanished_after_its_proof,
        a_stage_opens_without_a_soak,
        a_stage_opens_too_early,
        a_stage_opens_while_its_timer_runs,
        a_stage_opens_though_a_host_failed_meanwhile,
        a_rollout_ends_beside_a_host_that_waits,
        a_rollout_ends_in_which_nobody_is_proven,
    ],
    "I17": [
        a_host_is_listed_twice,
        a_host_is_listed_while_it_is_updated,
        a_host_starts_and_stays_on_its_list,
    ],
}


def run(checker_of):
    """Returns 0 if every history is judged as it is meant."""
    wrong = 0
    cases = [(None, story) for story in KEPT] + [(law, s) for law, stories in BROKEN.items() for s in stories]
    for law, story in cases:
        told = Story()
        story(told)
        checker = checker_of(told.reads())
        for entry in told.entries:
            checker.check(entry)
        found = {violation.split(" ")[0] for violation in checker.violations}
        # A broken law can show in another one as well, but not a kept one.
        if law not in found if law else found:
            wrong += 1
            print(f"{story.__name__}: {law} was expected, {checker.violations} was found")
    print(f"{len(KEPT)} histories that keep the laws, {len(cases) - len(KEPT)} that break one, {wrong} judged wrong")
    return 1 if wrong else 0
