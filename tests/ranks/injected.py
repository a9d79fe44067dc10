#!/usr/bin/env python3
"""Makes one of three ranks fail at a random instant, again and again, and watches what the others say.

    injected.py BUILD --launcher gloo --count 200 --seed 1

A failure is one of KINDS. Every rank must report an error of the right kind, or be ended by its launcher, and all
processes must end: whoever has done neither after LIMIT seconds hangs. The figures go to
bench/results/rank-failures.json. With --smoke they are only printed. Exits with 1 if a rank hung or was wrong, and with
77 if the launcher does not start programs here.
"""
import contextlib
import argparse
import collections
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import support  # noqa: E402

MODEL = os.path.join(ROOT, "tests", "fixtures", "families", "vit.dynamo23-folded.onnx")
RANKS = 3
TIMEOUT = 5  # seconds of --comm-timeout
LIMIT = 60
AFTER_CREATION = 1.0  # seconds of training in which failures may fall

IO, NOSPC, NOMEM, NONFINITE, PEER, LATE, ARG = 7, 8, 18, 19, 20, 21, 1
NOTHING, ENDED = "nothing", "ended by its launcher"  # what a rank may say instead of a code
ANY_OF_OTHERS = {PEER, LATE}
# For each kind: the answers that the failing rank may give, those that the others may give, and whether all go on.
KINDS = {
    "kill": ({NOTHING}, ANY_OF_OTHERS, False),  # SIGKILL
    "stop": ({NOTHING}, ANY_OF_OTHERS, False),  # SIGSTOP
    "error": ({IO}, {PEER}, False),  # the disk that holds a part of the training state fails
    "exception": ({NOMEM, NOTHING}, ANY_OF_OTHERS, False),  # `new` throws
    "full": ({NOSPC, PEER}, {NOSPC, PEER}, False),  # no space on the disk to which all ranks write a checkpoint
    "nan": ({NONFINITE}, {NONFINITE}, True),  # a value of the data is not finite
    "label": ({ARG}, {PEER}, True),  # a label beyond the classes
    "link": (ANY_OF_OTHERS, ANY_OF_OTHERS, False),  # the network between rank 0 and the others
}


class Network:
    """Two network namespaces with a cable between them. None if they are not wanted, or cannot be made here."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.names = [f"injected-{os.getpid()}-{side}" for side in "ab"]

    def __enter__(self):
        a, b = self.names
        cable = [f"ip netns add {a}", f"ip netns add {b}",
                 f"ip link add cable netns {a} type veth peer name cable netns {b}"]
        for name, number in ((a, 1), (b, 2)):
            cable += [f"ip -n {name} address add 192.0.2.{number}/24 dev cable", f"ip -n {name} link set cable up",
                      f"ip -n {name} link set lo up"]
        whole = self.wanted and os.geteuid() == 0 and shutil.which("ip") and all(self.run(line) for line in cable)
        return self if whole else None

    def __exit__(self, *_):
        for name in self.names if self.wanted else []:
            self.run(f"ip netns delete {name}")

    @staticmethod
    def run(line):
        return subprocess.run(line.split(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def inside(self, rank):
        return ["ip", "netns", "exec", self.names[rank != 0]]

    def set_cable(self, state):
        self.run(f"ip -n {self.names[0]} link set cable {state}")


class Disk:
    """A small file system for checkpoints, or a plain folder where none can be mounted."""

    def __init__(self, path):
        self.path = path
        os.mkdir(path)
        self.mounted = os.geteuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "none", path], stderr=subprocess.DEVNULL).returncode == 0

    def fill(self, pid):
        if not self.mounted:
            return resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        with open(os.path.join(self.path, "filler"), "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass

    def remove(self):
        if self.mounted:
            subprocess.run(["umount", "--lazy", self.path])


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Group:
    """The ranks of one run."""

    def __init__(self, build, launcher, kind, network=None):
        self.work = tempfile.mkdtemp(prefix="injected-")
        self.launcher, self.kind = launcher, kind
        self.disk = Disk(os.path.join(self.work, "checkpoints"))
        plan = os.path.join(self.work, "plan.json")
        with open(plan, "w") as file:
            json.dump({"n_persist": 1, "n_host": 1, "chunk_bytes": 16384}, file)
        words = [os.path.join(build, "injected_rank"), kind, MODEL, self.work, self.disk.path, "dim=batch=2",
                 "threads=1", f"comm_timeout={TIMEOUT}", f"plan={plan}", f"offload_dir={self.work}"]
        self.environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(build, "cache"))
        self.children = []
        if launcher == "gloo":
            place = f"192.0.2.1:{free_port()}" if network else random.choice([self.folder(), f"127.0.0.1:{free_port()}"])
            for rank in range(RANKS):
                inside = network.inside(rank) if network else []
                if network:
                    self.environment["GLOO_SOCKET_IFNAME"] = "cable"
                self.start(inside + words + ["comm=gloo", f"ranks={RANKS}", f"rank={rank}", f"rendezvous={place}"])
        else:
            self.environment.update(PROTRAIN_INJECTED_WAIT="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                                    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            more = ["--oversubscribe"] if launcher == "openmpi" else []
            self.start([f"mpirun.{launcher}"] + more + ["-n", str(RANKS)] + words)

    def folder(self):
        os.mkdir(os.path.join(self.work, "meet"))
        return os.path.join(self.work, "meet")

    def start(self, words):
        self.children.append(subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def events(self, rank):
        """{event: (seconds, number, text)} of a rank so far."""
        try:
            with open(os.path.join(self.work, f"rank.{rank}")) as file:
                lines = [line.rstrip("\n").split(" ", 3) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return {}
        return {event: (float(at), int(number), text) for at, event, number, text in lines}

    def wait(self, until, limit=LIMIT):
        """True once `until()` holds; False if it does not within the limit."""
        end = time.monotonic() + limit
        while not until():
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def pid(self, rank):
        return self.events(rank)["ready"][1]

    def is_gone(self, rank):
        try:
            with open(f"/proc/{self.pid(rank)}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError, KeyError):
            return True

    def end(self):
        for rank in range(RANKS):
            if "ready" in self.events(rank) and not self.is_gone(rank):
                with contextlib.suppress(ProcessLookupError):  # it may end meanwhile
                    os.kill(self.pid(rank), signal.SIGKILL)
        for child in self.children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.disk.remove()
        shutil.rmtree(self.work, ignore_errors=True)


def inject(group, victim, network):
    kind = group.kind
    if kind == "kill":
        os.kill(group.pid(victim), signal.SIGKILL)
    elif kind == "stop":
        os.kill(group.pid(victim), signal.SIGSTOP)
    elif kind == "full":
        group.disk.fill(group.pid(victim))
    elif kind == "link":
        network.set_cable("down")
    else:
        os.kill(group.pid(victim), signal.SIGUSR1)


def watch(group, victim, instant):
    """({rank: what it said}, {rank: seconds until then}, whether all ended in time)"""
    said, after = {}, {}
    silent = {victim} if group.kind in ("kill", "stop") else set()

    def all_said():
        for rank in set(range(RANKS)) - set(said):
            event = group.events(rank).get("failed")
            if event:
                said[rank], after[rank] = event[1], event[0] - instant
            elif rank in silent:
                said[rank] = NOTHING
            elif group.is_gone(rank) and "failed" not in group.events(rank):
                own = group.launcher == "gloo" or rank == victim
                said[rank], after[rank] = NOTHING if own else ENDED, time.monotonic() - instant
        return len(said) == RANKS

    def all_gone():
        return all(group.is_gone(rank) for rank in range(RANKS) if not (rank == victim and group.kind == "stop"))

    ended = group.wait(all_said) and group.wait(all_gone)
    return said, after, ended


def wrongs(group, victim, said, after):
    """What the ranks said that they may not say."""
    own, others, go_on = KINDS[group.kind]
    found = []
    if after.get(victim, 0) > 0.8 * TIMEOUT:  # it met its fault late, on a busy machine; others may have given it up
        own, others, go_on = own | ANY_OF_OTHERS, others | ANY_OF_OTHERS, False
    elif group.kind == "full" and not {NOSPC, ENDED} & set(said.values()):
        found.append("no rank says that there is no space")
    for rank, words in sorted(said.items()):
        allowed = own if rank == victim else others
        if words not in allowed and words != ENDED:
            found.append(f"rank {rank} says {words}: {group.events(rank).get('failed', (0, 0, ''))[2]}")
        if go_on and words != ENDED and "went-on" not in group.events(rank):
            found.append(f"rank {rank} did not go on")
        if "broken" in group.events(rank):
            found.append(f"rank {rank}: {group.events(rank)['broken'][2]}")
    return found


def span_of_life(build, launcher):
    """Seconds from the start of the ranks until their sessions exist; None if they do not start."""
    for _ in range(3):  # the first may measure the machine for longer than the others wait
        group = Group(build, launcher, "outside")
        try:
            group.wait(lambda: all({"created", "failed"} & set(group.events(rank)) for rank in range(RANKS)))
            events = [group.events(rank) for rank in range(RANKS)]
            if all("created" in one for one in events):
                return max(one["created"][0] - one["ready"][0] for one in events)
        finally:
            group.end()
    return None


def try_one(build, launcher, kind, span, network):
    victim = 0 if kind in ("full", "link") else random.randrange(RANKS)
    if kind == "link":
        network.set_cable("up")
    group = Group(build, launcher, kind, network if kind == "link" else None)
    try:
        if not group.wait(lambda: all("ready" in group.events(rank) for rank in range(RANKS))):
            raise SystemExit("the ranks do not start")
        time.sleep(random.uniform(0, span))
        created = all("created" in group.events(rank) for rank in range(RANKS))
        instant = time.monotonic()
        inject(group, victim, network)
        said, after, ended = watch(group, victim, instant)
        return {"kind": kind, "victim": victim, "created": created, "said": said, "after": after, "hang": not ended,
                "wrong": wrongs(group, victim, said, after)}
    finally:
        group.end()


def quantile(values, share):
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 3) if values else None


def seconds_of_others(run):
    """Seconds until each rank that did not fail itself reported: from the failing rank's report if it made one."""
    start = min(run["after"].get(run["victim"], 0), max(run["after"].values(), default=0))
    if run["kind"] in ("kill", "stop", "link"):
        start = 0
    return [max(0, at - start) for rank, at in run["after"].items() if rank != run["victim"] or run["kind"] == "link"]


def summary(runs):
    """Per kind, and of all: counts, and the seconds until the other ranks reported."""
    table = {}
    for kind in [kind for kind in KINDS if any(run["kind"] == kind for run in runs)] + ["all"]:
        chosen = [run for run in runs if kind in ("all", run["kind"])]
        others = [seconds for run in chosen for seconds in seconds_of_others(run)]
        said = collections.Counter(str(words) for run in chosen for words in run["said"].values())
        table[kind] = {"failures": len(chosen), "while_starting": sum(not run["created"] for run in chosen),
                       "hangs": sum(run["hang"] for run in chosen), "wrong": sum(bool(run["wrong"]) for run in chosen),
                       "seconds_p50": quantile(others, 0.5), "seconds_p99": quantile(others, 0.99), "said": said}
    return table


def save(launcher, figures):
    path = os.path.join(support.results_folder(), "rank-failures.json")
    before = json.load(open(path)) if os.path.exists(path) else {}
    launchers = dict(before.get("launchers", {}), **{launcher: figures})
    support.save("rank-failures", {"ranks": RANKS, "comm_timeout": TIMEOUT, "launchers": launchers})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--launcher", choices=["openmpi", "mpich", "gloo"], required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--verbose", action="store_true", help="print every failure")
    parser.add_argument("--smoke", action="store_true", help="write no figures")
    arguments = parser.parse_args()
    build, launcher = os.path.abspath(arguments.build), arguments.launcher
    random.seed(arguments.seed)
    span = span_of_life(build, launcher)
    if not span:
        print(f"skipped: {launcher} does not start ranks here")
        return 77
    kinds = arguments.kinds.split(",")
    with Network(launcher == "gloo" and "link" in kinds) as network:
        kinds = [kind for kind in kinds if kind != "link" or network]
        runs = []
        for i in range(arguments.count):
            runs.append(try_one(build, launcher, kinds[i % len(kinds)], span + AFTER_CREATION, network))
            if runs[-1]["hang"] or runs[-1]["wrong"] or arguments.verbose:
                print(f"{launcher} {i}: {runs[-1]}", flush=True)
    table = summary(runs)
    for kind, row in table.items():
        print(f"{launcher} {kind}: {row}")
    if not arguments.smoke:
        save(launcher, {"seed": arguments.seed, "kinds": table})
    return 1 if table["all"]["hangs"] or table["all"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
