"""Whole jobs as a user meets them: processes that die, hang, join late or are told to stop, and bad data.

    runs.py BINARY [CASE...]          prints `N passed, M failed, K skipped` last

Every case starts real node processes on this machine and checks exit code, message, time to end, and that no
process is left behind. Makes its own data; needs nothing but the binary.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from whole_jobs import (END_WITHIN_S, JOB, ONE_PIPELINE, TWO_NODES, Hosts, alive, children, expect, expect_end,
                        expect_none_left, finish, port_of, run_quietly, run_script)
from dead_folder import dead_folder
from free_port import free_port
from recorded_runs import read_lines_so_far
from run_cases import Failure, Skipped
from stalled_file import StalledFile

# ---- processes that end ---------------------------------------------------------------------------


def a_killed_node_with_the_only_copy_ends_the_job(bench):
    head = bench.start(ONE_PIPELINE)
    bench.wait_for_steps(2)
    pids = children(head.pid)
    os.kill(pids[2], signal.SIGKILL)
    _, _, err = finish(head, END_WITHIN_S)
    expect(head.returncode == 75 and "node 2" in err, f"exit {head.returncode}\n{err[-800:]}")
    expect("what is left of step" in err and "  fix: no checkpoint is whole" in err, f"what lives is not saved:\n{err[-800:]}")
    # Local nodes share this stderr and do not repeat what the head says.
    expect("no other node has llm." in err, f"what is lost is not said:\n{err[-800:]}")
    expect(err.count("killed by signal 9") == 1 and "ends:" not in err, f"said once:\n{err[-800:]}")
    expect_none_left(pids)


def a_stopped_node_is_found_by_its_silence(bench):
    head = bench.start(ONE_PIPELINE)
    bench.wait_for_steps(2)
    pids = children(head.pid)
    os.kill(pids[1], signal.SIGSTOP)
    begin = time.monotonic()
    expect_none_left([pid for pid in pids if pid != pids[1]])
    nodes_s = time.monotonic() - begin
    expect_end(head, 75, ["node 1", "was lost: nothing was heard from it for 3 s", "what is left of step", "fix:"], within=END_WITHIN_S - nodes_s)
    print(f"  nodes ended {nodes_s:.1f} s after the stop, the head {time.monotonic() - begin:.1f} s after it")
    expect_none_left(pids)


def a_head_that_was_only_stopped_goes_on(bench):
    """Ctrl-Z, and fg after longer than `cluster.heartbeat_timeout_s`."""
    head = bench.start(steps=20)
    bench.wait_for_steps(2)
    pids = children(head.pid)
    head.send_signal(signal.SIGSTOP)
    time.sleep(6)
    expect(all(alive(pid) for pid in pids), "nodes went with a head that is only stopped")
    head.send_signal(signal.SIGCONT)
    expect_end(head, 0, ["the supervisor was lost: nothing was heard from it for 3 s", "its nodes wait 60 s for it to go on"], within=120)
    expect([line["step"] for line in bench.metrics()] == list(range(1, 21)), "a step stands twice, or not at all")
    expect(not (bench.run_dir / "events.jsonl").exists(), "nobody was lost")


def a_head_that_stays_stopped_is_left(bench):
    head = bench.start("cluster.heartbeat_timeout_s=1")
    bench.wait_for_steps(2)
    pids = children(head.pid)
    head.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    expect_none_left(pids, within=21 + END_WITHIN_S)
    took = time.monotonic() - begin
    print(f"  nodes ended {took:.1f} s after the stop")
    expect(took > 20, "they did not wait")
    head.kill()
    _, _, err = finish(head, END_WITHIN_S)
    expect("nothing was heard from it for 1 s" in err and "did not go on within 20 s" in err, f"nodes must say why:\n{err[-800:]}")


def long_heartbeats_bear_a_long_silence(bench):
    head = bench.start("cluster.heartbeat_interval_s=30", "cluster.heartbeat_timeout_s=90", steps=20)
    bench.wait_for_steps(2)
    node = children(head.pid)[1]
    os.kill(node, signal.SIGSTOP)
    time.sleep(8)  # Longer than what defaults bear; nobody has anything to send meanwhile.
    os.kill(node, signal.SIGCONT)
    expect_end(head, 0, [], within=120)
    expect(len(bench.metrics()) == 20, "all steps were to be trained")


def nodes_end_when_the_head_is_killed(bench):
    head = bench.start()
    bench.wait_for_steps(2)
    pids = children(head.pid)
    head.kill()
    head.communicate()
    expect_none_left(pids)


def ctrl_c_ends_all_nodes(bench):
    head = bench.start()
    bench.wait_for_steps(2)
    pids = children(head.pid)
    expect(len(pids) == 4, f"{len(pids)} node processes")
    head.send_signal(signal.SIGINT)
    expect_end(head, 75, ["stopped by Ctrl-C during step", "is saved: the same command goes on"])
    expect_none_left(pids)


def sigterm_ends_all_nodes(bench):
    head = bench.start()
    bench.wait_for_steps(1)
    pids = children(head.pid)
    head.send_signal(signal.SIGTERM)
    expect_end(head, 75, ["stopped by SIGTERM during step", "is saved: the same command goes on"])
    expect_none_left(pids)


def ctrl_c_while_nodes_join(bench):
    head = bench.start("cluster.nodes=5", "cluster.local_nodes=4",
                       "parallel.pipelines=[{stages=[{node=0,vision=\"all\",audio=\"all\"},{node=1,llm=[0,2]},"
                       "{node=2,llm=[2,3]},{node=3,llm=[3,4]},{node=4,llm=[4,6]}]}]")
    time.sleep(1.5)
    pids = children(head.pid)
    head.send_signal(signal.SIGINT)
    expect_end(head, 130, ["stopped by Ctrl-C"])
    expect_none_left(pids)


# ---- joining --------------------------------------------------------------------------------------

def nodes_join_by_hand(bench):
    head = bench.start(*TWO_NODES, steps=3)
    address = port_of(head)
    nodes = [bench.node(address) for _ in range(2)]
    expect_end(head, 0, [], within=60)
    for node in nodes:
        finish(node, 5)
        expect(node.returncode == 0, f"a node ended with {node.returncode}")
    expect(len(bench.metrics()) == 3, "three steps were to be recorded")


def nodes_of_a_stopped_job_can_be_started_again(bench):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for listen, words in ((port, "this command joins it again"), (0, "it can be joined again where it listens then")):
        bench.run_dir = bench.folder / f"run-{listen}"
        head = bench.start(*TWO_NODES, f"cluster.listen=127.0.0.1:{listen}", steps=2000)
        address = port_of(head)
        nodes = [bench.node(address) for _ in range(2)]
        bench.wait_for_steps(2)
        head.send_signal(signal.SIGTERM)
        expect_end(head, 75, ["is saved: the same command goes on"])
        for node in nodes:
            _, _, err = finish(node, 6)
            expect(node.returncode == 75 and words in err, f"exit {node.returncode}: {err}")
            expect(err.count("\n") == 1, f"a node has one line for its end:\n{err}")


def a_missing_node_is_named(bench):
    head = bench.start(*TWO_NODES, "cluster.join_timeout_s=3")
    node = bench.node(port_of(head), "--node", "0")
    expect_end(head, 1, ["1 of 2 nodes joined", "missing: node 1", "troupe node --join"], within=15)
    _, _, err = finish(node, 6)
    expect(node.returncode == 1 and "missing: node 1" in err, f"the node that joined was not told why:\n{err}")
    expect(err.count("\n") == 1, f"a node has one line for its end:\n{err}")


def a_taken_place_is_refused(bench):
    head = bench.start(*TWO_NODES, "cluster.join_timeout_s=6")
    address = port_of(head)
    first = bench.node(address, "--node", "0")
    time.sleep(1.5)
    second = bench.node(address, "--node", "0")
    _, _, err = finish(second, 10)
    expect(second.returncode == 1 and "has joined already" in err, f"exit {second.returncode}: {err}")
    expect("fix: take a free id below 2, or leave --node out" in err, f"a refusal has a fix: {err}")
    head.send_signal(signal.SIGINT)
    finish(head, 8)
    finish(first, 8)


def nobody_listens(bench):
    node = bench.node("127.0.0.1:9", "--timeout", "1")
    _, _, err = finish(node, 10)
    expect(node.returncode == 1 and "no job let this node in within 1 s" in err, f"exit {node.returncode}: {err}")


# ---- keys -----------------------------------------------------------------------------------------


def nodes_show_the_key_of_their_job(bench):
    head = bench.start(*TWO_NODES, steps=3, env={"TROUPE_KEY": "5a" * 32})
    address = port_of(head)
    begin = time.monotonic()
    stranger = bench.node(address, env={"TROUPE_KEY": "5b" * 32})
    expect_end(stranger, 2, [f"{address}: who listens there has another key", "fix: give every node the key"])
    nodes = [bench.node(address, env={"TROUPE_KEY": "5a" * 32}) for _ in range(2)]
    expect_end(head, 0, [], within=60)
    for node in nodes:
        expect_end(node, 0, [])
    print(f"  {time.monotonic() - begin:.1f} s from the stranger to the end")


def a_key_file_lets_nodes_in(bench):
    bench.use_key()
    head = bench.start(*TWO_NODES, steps=3)
    address = port_of(head)
    nodes = [bench.node(address) for _ in range(2)]
    expect_end(head, 0, [], within=60)
    for node in nodes:
        expect_end(node, 0, [])


def an_open_door_needs_a_key(bench):
    head = bench.start("cluster.listen=0.0.0.0:0", steps=2)
    expect_end(head, 2, ["cluster.listen", "the job has no key: anybody could join", "fix: make one with `troupe key new FILE`"])
    expect(not bench.run_dir.exists(), "a run folder was made for a job that cannot start")
    node = bench.node("10.77.0.9:7000")
    expect_end(node, 2, ["a job at an address that other machines reach lets nobody in without its key", "--key FILE"])


def the_key_of_a_job_is_gone_with_it(bench):
    keys = bench.folder / "runtime"
    keys.mkdir(mode=0o700)
    head = bench.start(steps=2, env={"XDG_RUNTIME_DIR": str(keys)})
    bench.wait_for_steps(1)
    made = list((keys / "troupe").iterdir())
    expect(len(made) == 1 and made[0].stat().st_mode & 0o777 == 0o600, f"there should be one key: {made}")
    resolved = (bench.run_dir / "resolved.toml").read_text(encoding="utf-8")
    expect(made[0].read_text(encoding="utf-8").strip() not in resolved, "the key stands in the run folder")
    expect_end(head, 0, [], within=30)
    expect(not list((keys / "troupe").iterdir()), "the key was left behind")


def queues_in_shared_memory(process):
    """How many of UCX's queues the process has, its own and its peers'."""
    maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
    return len({line.split()[-1] for line in maps.splitlines() if "ucx_shm" in line})


def nodes_in_one_network_share_memory(bench):
    _, nodes = running_by_hand(bench)
    counts = [queues_in_shared_memory(node) for node in nodes]
    expect(all(count > 0 for count in counts), f"queues in shared memory: {counts}")


STEPS_MEASURED = 24


def median_step_ms(bench, hosts, places):
    """Of a run whose two nodes are on these hosts; steps that set up connections left out."""
    head = bench.start(*TWO_NODES, "cluster.listen=10.77.0.1:7700", steps=STEPS_MEASURED, prefix=hosts.prefix(0))
    address = port_of(head)
    nodes = [bench.node(address, prefix=hosts.prefix(place)) for place in places]
    expect_end(head, 0, [], within=90)
    for node in nodes:
        finish(node, 8)
    return median_of_steps(bench.metrics())


def median_of_steps(metrics):
    return statistics.median(step["step_ms"] for step in metrics[4:])


def hosts_join_over_a_network(bench):
    bench.use_key()
    with Hosts(3) as hosts:
        # Both in one namespace first: what the interfaces between them are measured against.
        in_one_ms = median_step_ms(bench, hosts, (1, 1))
        head = bench.start(*TWO_NODES, "cluster.listen=10.77.0.1:7701", steps=STEPS_MEASURED, prefix=hosts.prefix(0))
        address = port_of(head)
        nodes = [bench.node(address, prefix=hosts.prefix(i)) for i in (1, 2)]
        bench.wait_for_steps(1)
        counts = [queues_in_shared_memory(node) for node in nodes]
        expect_end(head, 0, [], within=90)
        for node in nodes:
            finish(node, 8)
            expect(node.returncode == 0, f"a node ended with {node.returncode}")
        expect(len(bench.metrics()) == STEPS_MEASURED, f"{len(bench.metrics())} of {STEPS_MEASURED} steps were recorded")
        # One machine after all, whose shared memory would answer six times slower between namespaces.
        said = (bench.run_dir / "train.log").read_text(encoding="utf-8")
        expect("nodes 0 and 1 are on one machine, but in network namespaces of their own" in said,
               f"nothing is said of the namespaces:\n{said}")
        expect(counts == [0, 0], f"queues in shared memory all the same: {counts}")
        between_ms = median_of_steps(bench.metrics())
        expect(between_ms <= 2 * in_one_ms, f"a step takes {between_ms:.0f} ms between namespaces, {in_one_ms:.0f} ms within one")


def an_unreachable_host_is_missing_in_the_roll_call(bench):
    bench.use_key()
    with Hosts(3) as hosts:
        run_quietly("ip", "-n", hosts.names[2], "link", "set", "tv3", "down")
        head = bench.start(*TWO_NODES, "cluster.listen=10.77.0.1:7702", "cluster.join_timeout_s=4",
                           prefix=hosts.prefix(0))
        address = port_of(head)
        good = bench.node(address, "--node", "0", prefix=hosts.prefix(1))
        lost = bench.node(address, "--node", "1", "--timeout", "3", prefix=hosts.prefix(2))
        expect_end(head, 1, ["1 of 2 nodes joined", "missing: node 1", "node --join 10.77.0.1:7702"], within=20)
        finish(good, 8)
        _, _, err = finish(lost, 20)
        expect(lost.returncode == 1 and "no job let this node in" in err, f"exit {lost.returncode}: {err}")


# ---- nodes started by hand, while the job runs ----------------------------------------------------


def running_by_hand(bench, *overrides, prefixes=((), (), ())):
    """A head and two nodes of it that have trained two steps; prefixes of the head's command and of theirs."""
    head = bench.start(*TWO_NODES, *overrides, prefix=prefixes[0])
    address = port_of(head)
    nodes = [bench.node(address, "--node", str(i), prefix=prefixes[1 + i]) for i in range(2)]
    try:
        bench.wait_for_steps(2)
    except Failure:
        for process in (head, *nodes):
            process.kill()
        raise
    return head, nodes


def expect_node_end(node, code, words, begin):
    """A node that must end within the time that all have, which began at `begin`."""
    expect_end(node, code, words, within=END_WITHIN_S - (time.monotonic() - begin))


def a_killed_node_started_by_hand_is_named(bench):
    head, nodes = running_by_hand(bench)
    nodes[0].kill()
    begin = time.monotonic()
    expect_end(head, 75, ["node 0 (", f"pid {nodes[0].pid}) was lost: the connection to it was lost", "it cannot be done without",
                          "is saved", "which is not all of the model"])
    expect_node_end(nodes[1], 75, ["node 1 ends: node 0 ("], begin)
    nodes[0].communicate()


def a_node_that_is_told_to_end_leaves_and_the_job_goes_on(bench):
    for wanted, code, name in ((signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, "Ctrl-C")):
        bench.run_dir = bench.folder / name
        head, nodes = running_by_hand(bench)
        nodes[1].send_signal(wanted)
        expect_node_end(nodes[1], code, [], time.monotonic())
        bench.wait_for_steps(len(bench.metrics()) + 3)
        head.send_signal(signal.SIGTERM)
        expect_end(head, 75, ["stopped by SIGTERM", "is saved"])
        drained = [json.loads(line) for line in (bench.run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()]
        drained = [event for event in drained if event["kind"] == "drained"]
        expect(len(drained) == 1 and drained[0]["nodes"] == [1] and f"stopped by {name}" in drained[0]["why"],
               f"events: {drained}")
        expect([line["step"] for line in bench.metrics()] == list(range(1, len(bench.metrics()) + 1)), "a step was lost")
        nodes[0].communicate()


def a_node_that_the_owner_drains_says_that_it_has_left(bench):
    head, nodes = running_by_hand(bench)
    done = subprocess.run([str(bench.binary), "ctl", str(bench.run_dir), "drain", "1"], capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    _, out, err = finish(nodes[1], 30)
    expect(nodes[1].returncode == 0 and "node 1: it has left the job, which goes on" in out and "the job is done" not in out,
           f"exit {nodes[1].returncode}\n{out[-800:]}{err[-800:]}")
    bench.wait_for_steps(len(bench.metrics()) + 2)
    head.send_signal(signal.SIGTERM)
    expect_end(head, 75, ["stopped by SIGTERM", "is saved"])
    nodes[0].communicate()


def nodes_that_are_told_to_end_together_end_the_job(bench):
    head, nodes = running_by_hand(bench)
    for node in nodes:
        node.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    expect_end(head, 75, ["stopped by SIGTERM at node ", "during step", "is saved"])
    for node in nodes:
        expect_node_end(node, 143, [], begin)


def the_next_head_is_found_at_the_address_that_the_job_file_names(bench):
    """Nodes do not see the run folder, as if it were on another machine, and the next head listens elsewhere."""
    bench.use_key()
    old, new = (bench.folder / name for name in ("old", "new"))
    old.mkdir()
    ports = [free_port() for _ in range(2)]
    job, _ = bench.own_data()
    own = job.read_text(encoding="utf-8")
    words = (*TWO_NODES, "job.run_dir=run")  # Relative to where the head is.
    bench.run_dir = old / "run"
    head = bench.start(*words, f"cluster.listen=127.0.0.1:{ports[0]}", steps=60, prefix=("env", "-C", str(old)))
    address = port_of(head)
    nodes = [bench.node(address, "--node", str(i), "--job", str(job)) for i in range(2)]
    bench.wait_for_steps(3)
    head.kill()
    head.communicate()
    old.rename(new)
    time.sleep(2)  # They look where it is not.
    job.write_text(f'{own}[cluster]\nkey = "{bench.key}"\nlisten = "127.0.0.1:{ports[1]}"\n', encoding="utf-8")
    bench.run_dir = new / "run"
    head = bench.start(*words, f"cluster.listen=127.0.0.1:{ports[1]}", steps=60, prefix=("env", "-C", str(new)))
    _, out, err = finish(head, 120)
    expect(head.returncode == 0, f"exit {head.returncode}\n{out[-1500:]}{err[-800:]}")
    for node in nodes:
        _, out, err = finish(node, END_WITHIN_S)
        expect(node.returncode == 0 and "keep the state of step" in err, f"a node, exit {node.returncode}:\n{out[-800:]}{err[-800:]}")
    expect([line["step"] for line in bench.metrics()] == list(range(1, 61)), "a step stands twice, or not at all")
    events = [json.loads(line)["kind"] for line in (bench.run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    expect(events == ["head-lost"], f"events: {events}")


def wait_for_line(process, words):
    """Reads a process's lines up to one with these words."""
    for line in process.stdout:
        if words in line:
            return
    raise Failure(f"it ended without the line '{words}':\n" + process.stderr.read())


def two_nodes_of_which_one_opens_its_data(bench, job, stalled):
    head = bench.start(*TWO_NODES)
    address = port_of(head)
    opening = bench.node(address, "--node", "0", "--job", str(job))
    expect(stalled.wait_until_wanted(opening), "it did not open its data")
    ready = bench.node(address, "--node", "1")
    wait_for_line(head, "node 1 (")  # It joined.
    return head, address, opening, ready


def a_node_that_opens_its_data_hears_why_the_job_ends(bench):
    job, samples = bench.own_data()
    with StalledFile(samples) as stalled:
        head, _, opening, ready = two_nodes_of_which_one_opens_its_data(bench, job, stalled)
        ready.kill()  # Its place is free: that is no reason.
        time.sleep(1)
        expect(head.poll() is None, "the job ends with a node that was lost before it began")
        head.send_signal(signal.SIGINT)
        begin = time.monotonic()
        expect_end(head, 130, ["stopped by Ctrl-C"])
        expect_node_end(opening, 1, ["node 0 ends: stopped by Ctrl-C"], begin)
        ready.communicate()


def a_node_that_is_told_to_end_before_the_job_begins_frees_its_place(bench):
    job, samples = bench.own_data()
    with StalledFile(samples) as stalled:
        head, address, opening, ready = two_nodes_of_which_one_opens_its_data(bench, job, stalled)
        opening.send_signal(signal.SIGTERM)
        expect_node_end(opening, 143, ["stopped by SIGTERM"], time.monotonic())
        wait_for_line(head, f"pid {opening.pid}) was stopped by SIGTERM before the job began; its place is free")
        other = bench.node(address, "--node", "0")
        bench.wait_for_steps(1)
        head.send_signal(signal.SIGTERM)
        expect_end(head, 75, ["stopped by SIGTERM"])
        for node in (other, ready):
            finish(node, END_WITHIN_S)


def a_node_that_loses_its_network_is_named(bench):
    bench.use_key()
    with Hosts(3) as hosts:
        head, nodes = running_by_hand(bench, "cluster.listen=10.77.0.1:7703", "cluster.head_timeout_s=0",
                                      prefixes=[hosts.prefix(i) for i in range(3)])
        run_quietly("ip", "-n", hosts.names[2], "link", "set", "tv3", "down")
        begin = time.monotonic()
        expect_end(head, 75, ["node 1 (", "which is not all of the model"])
        expect_node_end(nodes[0], 75, ["node 0 ends: node 1 ("], begin)
        expect_node_end(nodes[1], 1, ["node 1 ends: ", "the supervisor was lost: nothing was heard from it for 3 s"], begin)
        print(f"  all ended {time.monotonic() - begin:.1f} s after the cable was cut")


# Each of two nodes has everything.
WHOLE_ON_EACH = ("cluster.nodes=2", "cluster.local_nodes=0",
                 'parallel.pipelines=[{stages=[{node=0,vision="all",audio="all",llm="all"}]},'
                 '{stages=[{node=1,vision="all",audio="all",llm="all"}]}]')


# Window: a way between two nodes drops everything in silence
def a_way_that_drops_everything_costs_one_end(bench):
    """The bridge carries nothing between the hosts of two nodes any more, and all between each of them and the head."""
    bench.use_key()
    with Hosts(3) as hosts:
        head = bench.start(*WHOLE_ON_EACH, "cluster.listen=10.77.0.1:7704", "cluster.heartbeat_interval_s=0.3",
                           "cluster.heartbeat_timeout_s=1.5", steps=200, prefix=hosts.prefix(0))
        address = port_of(head)
        nodes = [bench.node(address, "--node", str(i), prefix=hosts.prefix(1 + i)) for i in range(2)]
        bench.wait_for_steps(3)
        for port in ("tp2", "tp3"):
            if not run_quietly("ip", "-n", hosts.names[0], "link", "set", port, "type", "bridge_slave", "isolated", "on"):
                raise Skipped("bridges of this kernel isolate no ports")
        begin, seen = time.monotonic(), len(bench.metrics())
        bench.wait_for_steps(seen + 3, seconds=20)
        print(f"  the other node trains on {time.monotonic() - begin:.1f} s after the way was cut")
        expect_end(head, 0, [], within=90)
        lost = [event for event in read_lines_so_far(bench.run_dir / "events.jsonl") if event["kind"] == "lost"]
        expect([event["nodes"] for event in lost] == [[1]], f"lost: {lost}")
        expect("has not come, and neither of them was told of an error" in lost[0]["why"], f"why: {lost[0]['why']}")
        expect(lost[0]["detect_ms"] >= 3000, f"it was given up too soon: {lost[0]}")
        expect_end(nodes[1], 1, ["node 1 ends: the job goes on without this node"], within=8)
        finish(nodes[0], 8)
        expect(nodes[0].returncode == 0, f"the other node ended with {nodes[0].returncode}")


# Window: a way between two nodes drops everything in silence
def a_way_that_drops_all_state_costs_one_end(bench):
    """It is cut while one node works alone, and needs nothing of the other one; then both are to work."""
    bench.use_key()
    pipelines = WHOLE_ON_EACH[-1].removeprefix("parallel.")
    alone = pipelines[:pipelines.index("]},{") + 2] + "]"
    both = bench.folder / "both.toml"
    both.write_text(f"parallel.{pipelines}\n", encoding="utf-8")
    with Hosts(3) as hosts:
        head = bench.start(*WHOLE_ON_EACH, f"debug.layouts=[{{from_step=3,{alone}}}]", "cluster.listen=10.77.0.1:7705",
                           "cluster.heartbeat_interval_s=0.3", "cluster.heartbeat_timeout_s=1.5", steps=200, prefix=hosts.prefix(0))
        address = port_of(head)
        nodes = [bench.node(address, "--node", str(i), prefix=hosts.prefix(1 + i)) for i in range(2)]
        bench.wait_for_steps(4)
        for port in ("tp2", "tp3"):
            if not run_quietly("ip", "-n", hosts.names[0], "link", "set", port, "type", "bridge_slave", "isolated", "on"):
                raise Skipped("bridges of this kernel isolate no ports")
        done = subprocess.run([*hosts.prefix(0), str(bench.binary), "ctl", str(bench.run_dir), "layout", str(both)],
                              capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == 0, f"the layout is not taken: {done.stdout}{done.stderr}")
        begin, lost = time.monotonic(), []
        while not lost:  # Told with the first step after it.
            expect(time.monotonic() < begin + 20, "no node is given up: the copy is waited for")
            lost = [event for event in read_lines_so_far(bench.run_dir / "events.jsonl") if event["kind"] == "lost"]
            time.sleep(0.05)
        print(f"  the other node trains on {time.monotonic() - begin:.1f} s after it was to give state")
        expect([event["nodes"] for event in lost] == [[1]], f"lost: {lost}")
        expect("while state is copied between them, and neither of them was told of an error" in lost[0]["why"], f"why: {lost[0]['why']}")
        expect(lost[0]["detect_ms"] >= 3000, f"it was given up too soon: {lost[0]}")
        expect_end(nodes[1], 1, ["node 1 ends: the job goes on without this node"], within=8)
        expect_end(head, 0, [], within=90)
        finish(nodes[0], 8)
        expect(nodes[0].returncode == 0, f"the other node ended with {nodes[0].returncode}")


SLOW = 'debug.slow_shapes=[{module="vision",max_rows=1000000,factor=1000},{module="llm",max_rows=1000000,factor=1000}]'


def nodes_leave_from_the_middle_of_a_long_action(bench):
    head = bench.start(*TWO_NODES, SLOW)
    address = port_of(head)
    nodes = [bench.node(address, "--node", str(i)) for i in range(2)]
    deadline = time.monotonic() + 60
    while not (bench.run_dir / "plan.json").exists():
        expect(time.monotonic() < deadline, "training did not begin")
        time.sleep(0.05)
    time.sleep(1.5)
    head.send_signal(signal.SIGINT)
    begin = time.monotonic()
    expect_end(head, 130, ["stopped by Ctrl-C"])
    for node in nodes:
        expect_node_end(node, 1, ["ends: stopped by Ctrl-C"], begin)


# ---- run folders and ports ------------------------------------------------------------------------


def lock_of(run_dir):
    return run_dir.parent / f".{run_dir.name}.lock"


def a_node_killed_after_the_last_step_loses_no_model(bench):
    """Each node of two layouts in turn, as soon as the last step is recorded: the model is being collected and written."""
    ends = []
    for layout in ((), (ONE_PIPELINE,)):
        for node in range(4):
            bench.run_dir = bench.folder / f"run-{len(ends)}"
            head = bench.start(*layout, "checkpoint.every_steps=2", steps=5)
            deadline = time.monotonic() + 60
            bench.wait_for_steps(1)
            pids = children(head.pid)
            # Without a pause: what is to be hit takes milliseconds.
            while (bench.run_dir / "metrics.jsonl").read_bytes().count(b"\n") < 5 and time.monotonic() < deadline:
                pass
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[node], signal.SIGKILL)
            _, out, err = finish(head, 60)
            model = bench.run_dir / "model" / "model.safetensors"
            what = f"node {node}, {'one pipeline' if layout else 'two pipelines'}: exit {head.returncode}\n{out[-1500:]}{err[-800:]}"
            expect(head.returncode in (0, 75), what)
            if head.returncode == 0:
                expect(model.is_file() and not err, f"it ended well without a model, or with words: {what}")
            else:
                expect(f"node {node} (" in err and "was lost: " in err and "is saved" in err, what)
            expect(len(bench.metrics()) == 5, what)
            expect_none_left(pids)
            ends.append(head.returncode)
    expect(0 in ends, f"no job wrote its model: {ends}")


def a_second_job_in_a_live_runs_folder_is_refused(bench):
    head = bench.start(steps=30)
    bench.wait_for_steps(2)
    second = bench.start(steps=2)
    expect_end(second, 2, ["another job writes this run folder: process ", f"{head.pid} on ", "since ", "; it answers",
                           "fix: wait for it or stop it, or give this job another job.run_dir"], within=10)
    expect(not pathlib.Path(f"{bench.run_dir}.1").exists(), "the live run's folder was moved")
    finish(head, 120)
    expect(head.returncode == 0 and len(bench.metrics()) == 30, f"the first job: exit {head.returncode}")
    expect((bench.run_dir / "model" / "model.safetensors").is_file(), "its weights are lost")
    expect(not lock_of(bench.run_dir).exists(), "a lock stayed behind")


def a_second_job_with_a_live_jobs_checkpoints_is_refused(bench):
    """Each would clear away what the other has half saved, and put its steps over the other's."""
    saved = bench.folder / "saved"
    words = (f"checkpoint.dir={saved}", "checkpoint.every_steps=1")
    head = bench.start(*words, steps=1000)
    bench.wait_for_steps(2)
    first, bench.run_dir = bench.run_dir, bench.folder / "other"
    refused = ["another job writes this folder of checkpoints: process ", str(saved), "fix: wait for it or stop it, or give this job another checkpoint.dir"]
    for flags in ((), ("--reference",)):
        expect_end(bench.start(*words, *flags, steps=2), 2, [*refused, f"{head.pid} on "], within=10)
    expect_end(bench.start(f"checkpoint.dir={first / 'checkpoints'}", steps=2), 2, [refused[0], "another checkpoint.dir"], within=10)
    expect(not bench.run_dir.exists(), "a run folder was made for a job that was refused")
    head.send_signal(signal.SIGINT)
    expect_end(head, 75, ["is saved"], within=15)
    # It is gone, but not what it saved.
    expect_end(bench.start(*words, steps=2), 2, ["the newest of step ", "--resume", "--fresh"], within=10)
    expect_end(bench.start(*words, "--fresh", steps=2), 0, [], within=60)
    expect((saved / "superseded").is_dir(), "they are not laid aside")
    left = [path.name for path in bench.folder.iterdir() if path.name.endswith(".lock")]
    expect(not left, f"locks stayed behind: {left}")


def a_killed_jobs_folder_is_free_again(bench):
    head = bench.start()
    bench.wait_for_steps(2)
    pids = children(head.pid)
    head.kill()
    finish(head, END_WITHIN_S)
    expect_none_left(pids)
    expect(lock_of(bench.run_dir).exists(), "nothing shows what was killed")
    again = bench.start(steps=2)
    _, out, err = finish(again, 60)
    expect(again.returncode == 0, f"exit {again.returncode}\n{err[-800:]}")
    expect(f"was still locked by process {head.pid} on " in out, f"nothing is said of it:\n{out[-1500:]}")
    expect(pathlib.Path(f"{bench.run_dir}.1").is_dir(), "the killed run was not moved aside")
    expect(not lock_of(bench.run_dir).exists(), "a lock stayed behind")


def a_folder_that_is_no_run_is_left_alone(bench):
    bench.run_dir.mkdir()
    (bench.run_dir / "chapter.tex").write_text("years of work", encoding="utf-8")
    for flags in ((), ("--reference",)):
        head = bench.start(*flags, steps=2)
        seconds, _, err = finish(head, 10)
        expect(head.returncode == 2, f"exit {head.returncode}\n{err[-800:]}")
        expect("holds something else than a run ('chapter.tex' is there)" in err and "fix:" in err, err[-800:])
    expect([path.name for path in bench.run_dir.iterdir()] == ["chapter.tex"], "something was written there")
    expect(not lock_of(bench.run_dir).exists(), "a lock stayed behind")


def a_port_is_free_again_when_its_job_has_ended(bench):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    listen = f"127.0.0.1:{port}"
    head = bench.start(f"cluster.listen={listen}")
    bench.wait_for_steps(2)
    pids = children(head.pid)
    with socket.create_connection(("127.0.0.1", port)) as visitor:
        visitor.settimeout(5)
        time.sleep(0.2)  # Until the head has taken it.
        head.kill()  # The end that closes first keeps its port in TIME-WAIT for a minute.
        finish(head, END_WITHIN_S)
        while visitor.recv(1 << 16):
            pass
    expect_none_left(pids)
    again = bench.start(f"cluster.listen={listen}", steps=2)
    _, _, err = finish(again, 60)
    expect(again.returncode == 0, f"exit {again.returncode}\n{err[-800:]}")


def why_a_port_cannot_be_had_is_said(bench):
    bench.use_key()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for listen, why in ((taken, "another program listens there"),
                            ("198.51.100.7:7000", "this machine has no such address"),
                            ("no-such-host.invalid:7000", "the host is unknown")):
            head = bench.start(f"cluster.listen={listen}", steps=2)
            expect_end(head, 1, [f"cannot listen on {listen}: {why}", "cluster.listen", "fix: "], within=20)
            expect(not bench.run_dir.exists(), "a run folder was made for a job that cannot start")


# ---- data and numbers -----------------------------------------------------------------------------


def spoil(bench, count):
    """Copies the data set's list and names missing pictures in `count` of its samples."""
    samples = json.loads((bench.data / "samples.json").read_text(encoding="utf-8"))
    spoiled = [sample for sample in samples if "image" in sample][:count]
    for sample in spoiled:
        sample["image"] = "not-there.png" if isinstance(sample["image"], str) else \
            ["not-there.png"] * len(sample["image"])
    path = bench.folder / "spoiled.json"
    path.write_text(json.dumps(samples), encoding="utf-8")
    return f'data.sources=[{{json="{path}",media="{bench.data}"}}]', [sample["id"] for sample in spoiled]


def bad_samples_are_dropped_and_listed(bench):
    sources, ids = spoil(bench, 6)
    head = bench.start(sources, "data.max_bad_fraction=0.5", "train.epochs=1", steps=1)
    finish(head, 10)  # Two durations: refused.
    expect(head.returncode == 2, f"exit {head.returncode}")
    command = [word for word in bench.command(sources, "data.max_bad_fraction=0.5", "train.epochs=1")
               if not word.startswith("train.steps")]
    job = bench.folder / "epoch.toml"
    job.write_text(re.sub(r"(?m)^steps = .*$", "epochs = 1", JOB.read_text(encoding="utf-8")), encoding="utf-8")
    command[2] = str(job)
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=bench.folder, check=False)
    expect(result.returncode == 0, f"exit {result.returncode}\n{result.stderr[-800:]}")
    listed = [json.loads(line) for line in (bench.run_dir / "bad_samples.jsonl").read_text().splitlines()]
    expect(sorted(entry["id"] for entry in listed) == sorted(ids), f"listed {[e['id'] for e in listed]}")
    trained = [identity for line in (bench.run_dir / "samples.jsonl").read_text().splitlines()
               for identity in json.loads(line)["ids"]]
    total = len(json.loads((bench.data / "samples.json").read_text()))
    expect(len(trained) == len(set(trained)) == total - len(ids), f"{len(trained)} of {total} samples trained")
    expect(not set(trained) & set(ids), "a bad sample was trained")


def too_many_bad_samples_stop_the_run(bench):
    sources, _ = spoil(bench, 60)
    head = bench.start(sources, "data.max_bad_fraction=0.01")
    expect_end(head, 3, ["bad samples", "data.max_bad_fraction", "bad_samples.jsonl"], within=60)


# Window: an error that would come again
def too_many_bad_samples_in_a_later_step_end_the_run_with_a_checkpoint(bench):
    samples = json.loads((bench.data / "samples.json").read_text(encoding="utf-8"))[:48]
    for sample in samples[32:]:  # The third batch, which is planned once the first step has ended.
        sample["conversations"] = [turn for turn in sample["conversations"] if turn["from"] == "human"]
    path = bench.folder / "later.json"
    path.write_text(json.dumps(samples), encoding="utf-8")
    words = [f'data.sources=[{{json="{path}",media="{bench.data}"}}]', "data.shuffle=false"]
    head = bench.start(*words, "data.max_bad_fraction=0.01", steps=3)
    _, _, err = finish(head, 60)
    expect(head.returncode == 3 and "data.max_bad_fraction" in err, f"exit {head.returncode}\n{err[-800:]}")
    saved = re.search(r"step ([12]) is saved: the same command with --resume goes on from there \(", err)
    expect(saved, f"what the steps before had done is lost:\n{err[-800:]}")
    # Mended, here by what the job bears.
    head = bench.start(*words, "data.max_bad_fraction=1", "--resume", steps=3)
    _, out, err = finish(head, 60)
    expect(head.returncode == 0 and f"going on after step {saved[1]}" in out + err, f"exit {head.returncode}\n{out[-800:]}{err[-800:]}")
    expect([bool(step.get("skipped")) for step in bench.metrics()] == [False, False, True], f"steps: {bench.metrics()}")


def steps_without_finite_loss_are_skipped_then_stop(bench):
    head = bench.start("optimizer.lr=1000", "optimizer.warmup_steps=0", "optimizer.max_grad_norm=0",
                       "train.max_nonfinite_in_a_row=3")
    expect_end(head, 1, ["3 steps in a row were skipped", "optimizer.lr", " saved: "], within=60)
    steps = bench.metrics()
    expect(all(step.get("skipped") for step in steps[-3:]), f"the last three steps: {steps[-3:]}")
    expect([step["step"] for step in steps] == list(range(1, len(steps) + 1)), "steps must go on counting")
    last = (bench.run_dir / "samples.jsonl").read_text().splitlines()[-1]
    expect(json.loads(last)["ids"] == [], "a skipped step trained samples")


def a_batch_of_bad_samples_skips_its_step(bench):
    samples = json.loads((bench.data / "samples.json").read_text(encoding="utf-8"))[:32]
    for sample in samples[16:]:
        sample["conversations"] = [turn for turn in sample["conversations"] if turn["from"] == "human"]
    path = bench.folder / "half.json"
    path.write_text(json.dumps(samples), encoding="utf-8")
    head = bench.start(f'data.sources=[{{json="{path}",media="{bench.data}"}}]', "data.shuffle=false",
                       "data.max_bad_fraction=1", steps=4)
    _, out, err = finish(head, 60)
    expect(head.returncode == 0, f"exit {head.returncode}\n{err[-800:]}")
    skipped = [step.get("skipped") for step in bench.metrics()]
    expect([bool(why) for why in skipped] == [False, True, False, True], f"skipped: {skipped}")
    expect("no trained tokens" in skipped[1] and "no trained tokens" in out, f"it must say why: {skipped}")
    expect([step["skipped_steps"] for step in bench.metrics()] == [0, 1, 1, 2], "skipped steps must be counted")
    expect(bench.metrics()[-1]["bad_samples"] == 16, f"16 bad samples: {bench.metrics()[-1]}")
    for words in ("2 of 4 steps left the parameters alone", "16 bad samples were dropped"):
        expect(words in out, f"the last lines must say '{words}':\n{out[-800:]}")


def an_epoch_without_a_good_sample_ends_the_run(bench):
    samples = json.loads((bench.data / "samples.json").read_text(encoding="utf-8"))[:32]
    for sample in samples:
        sample["conversations"] = [turn for turn in sample["conversations"] if turn["from"] == "human"]
    path = bench.folder / "none.json"
    path.write_text(json.dumps(samples), encoding="utf-8")
    head = bench.start(f'data.sources=[{{json="{path}",media="{bench.data}"}}]', "data.max_bad_fraction=1")
    expect_end(head, 3, ["a whole epoch, could be trained", "bad_samples.jsonl"], within=60)


def other_data_on_a_node_ends_the_job_before_it_starts(bench):
    """A node with its own job file: the same data elsewhere will do, other data will not."""
    elsewhere = bench.folder / "elsewhere"
    elsewhere.mkdir()
    samples = json.loads((bench.data / "samples.json").read_text(encoding="utf-8"))
    for name, change, code in (("same", False, 0), ("other", True, 3)):
        if change:
            samples[5]["conversations"][-1]["value"] += "!"
        (elsewhere / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
        own = bench.folder / f"{name}.toml"
        own.write_text(f'extends = "{JOB}"\n[[data.sources]]\njson = "{elsewhere}/samples.json"\n'
                       f'media = "{bench.data}"\n', encoding="utf-8")
        bench.run_dir = bench.folder / name
        head = bench.start("cluster.local_nodes=3", "cluster.nodes=4", steps=2)
        address = port_of(head)
        node = bench.node(address, "--job", str(own))
        if code == 0:
            expect_end(head, 0, [], within=60)
        else:
            expect_end(head, code, ["has other data", "as many samples", "--job"], within=60)
        finish(node, END_WITHIN_S)


def data_at_another_place_on_a_node(bench):
    """A machine on which nothing lies where the head has it: a job file of its own says where the data are."""
    if os.geteuid() != 0 or not run_quietly("unshare", "-m", "true"):
        raise Skipped("needs root and mount namespaces")
    elsewhere = bench.data
    bench.data = bench.folder / "data-of-the-head"  # With the profile.
    shutil.copytree(elsewhere, bench.data)
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(bench.data)]
    own = bench.folder / "own.toml"
    own.write_text(f'extends = "{JOB}"\n[[data.sources]]\njson = "{elsewhere}/samples.json"\n', encoding="utf-8")

    head = bench.start("cluster.local_nodes=3", "cluster.nodes=4", steps=2)
    node = bench.node(port_of(head), "--job", str(own), prefix=hidden)
    expect_end(head, 0, [], within=60)
    finish(node, END_WITHIN_S)

    bench.run_dir = bench.folder / "without"
    head = bench.start("cluster.local_nodes=3", "cluster.nodes=4", steps=2)
    node = bench.node(port_of(head), prefix=hidden)
    words = [f"{bench.data}/samples.json is not on this machine", "--job"]
    expect_end(head, 2, ["node 3", *words], within=60)
    expect_end(node, 2, words)


def variables_of_ucx_come_first(bench):
    """Which network a machine uses is known on that machine: UCX's own variables say so."""
    for transports, code, words in (("self,tcp", 0, []), ("self,carrier_pigeon", 2, ["carrier_pigeon", "fix:"])):
        bench.run_dir = bench.folder / transports
        head = bench.start(steps=2, prefix=["env", f"UCX_TLS={transports}"])
        expect_end(head, code, words, within=60)


def other_media_on_a_node_end_the_job_before_it_starts(bench):
    elsewhere = bench.folder / "elsewhere"
    shutil.copytree(bench.data, elsewhere)
    for picture in (elsewhere / "images").iterdir():
        with open(picture, "ab") as file:
            file.write(b"?")
    own = bench.folder / "own.toml"
    own.write_text(f'extends = "{JOB}"\n[[data.sources]]\njson = "{elsewhere}/samples.json"\n', encoding="utf-8")
    head = bench.start("cluster.local_nodes=3", "cluster.nodes=4", steps=2)
    node = bench.node(port_of(head), "--job", str(own))
    expect_end(head, 3, ["node 3 (", "has other data: it has '", " bytes, others with ", "the same media files"], within=60)
    finish(node, END_WITHIN_S)


def a_file_that_cannot_be_read_ends_the_job(bench):
    picture = sorted((bench.data / "images").iterdir())[0]
    with StalledFile(picture) as stalled:
        head = bench.start("data.read_timeout_s=1")
        expect(stalled.wait_until_wanted(head), "it did not read its data")
        pids = children(head.pid)
        _, _, err = finish(head, 60)
        # Steps that ended before it was wanted are saved.
        saved = "fix: step " in err and "the same command goes on from there" in err
        expect(head.returncode == (75 if saved else 1), f"exit {head.returncode}\n{err[-800:]}")
        for word in ("node ", f"{picture} could not be read within 1 s", *([] if saved else ["fix: look at the disk"])):
            expect(word in err, f"'{word}' is missing on stderr:\n{err[-800:]}")
        expect_none_left(pids)
        reference = bench.start("data.read_timeout_s=1", "--reference")
        expect_end(reference, 1, [f"{picture} could not be read within 1 s", "fix: look at the disk"], within=60)


def a_list_of_samples_that_cannot_be_read_ends_the_job(bench):
    _, samples = bench.own_data()
    with StalledFile(samples):
        head = bench.start(f'data.sources=[{{json="{samples}",media="{bench.data}"}}]', "data.read_timeout_s=1")
        expect_end(head, 1, [f"{samples} could not be read within 1 s"], within=20)
        expect(not bench.run_dir.exists(), "a run folder was made for a job that cannot start")


def expect_a_joining_node_names(bench, head, address, file, *words):
    """Long before `cluster.join_timeout_s`, by the node and by the head."""
    node = bench.node(address, *words)
    begin = time.monotonic()
    expect_end(head, 1, ["node 0 (", f"{file} could not be read within 1 s", "fix: look at the disk"], within=20)
    expect_node_end(node, 1, [f"{file} could not be read within 1 s"], begin)


def a_list_of_samples_that_a_joining_node_cannot_read(bench):
    job, samples = bench.own_data()
    with StalledFile(samples):
        head = bench.start(*TWO_NODES, "data.read_timeout_s=1")
        expect_a_joining_node_names(bench, head, port_of(head), samples, "--job", str(job))


def a_folder_of_data_that_answers_a_joining_node_nothing(bench):
    """Not even whether its files are there; the head has read them before."""
    data = bench.folder / "went-away"
    shutil.copytree(bench.data, data)
    source = f'data.sources=[{{json="{data}/samples.json",media="{data}"}}]'
    head = bench.start(*TWO_NODES, source, "data.read_timeout_s=1")
    address = port_of(head)
    shutil.rmtree(data)
    with dead_folder(data):
        expect_a_joining_node_names(bench, head, address, data / "samples.json")


def a_trace_follows_microbatches_across_processes(bench):
    head = bench.start(steps=3)
    expect_end(head, 0, [], within=60)
    trace = json.loads((bench.run_dir / "trace.json").read_text(encoding="utf-8"))
    slices = [event for event in trace if event.get("ph") == "X"]
    expect({event["pid"] for event in slices} == {1, 2, 3, 4}, "slices of all four nodes")
    begins = {event["id"]: event for event in trace if event.get("ph") == "s"}
    ends = [event for event in trace if event.get("ph") == "f"]
    crossing = [end for end in ends if end["id"] in begins and begins[end["id"]]["pid"] != end["pid"]]
    expect(len(crossing) >= 3 * 4, f"{len(crossing)} arrows between processes")


def expect_promised_memory(steps):
    for step in steps:
        share = step["activation_bytes"] / step["promised_activation_bytes"]
        expect(0.95 <= share <= 1.05, f"step {step['step']}: {share:.3f} of the promised activation bytes")
        over = step["activations_over_promise"]
        expect(0.95 <= over <= 1.05, f"step {step['step']}: a device has {over:.3f} of what was promised of it")


def memory_is_as_promised(bench):
    for policy, schedule in [("auto", "eager-1f1b"), ("random", "gpipe"), ("dflop", "zero-bubble")]:
        bench.run_dir = bench.folder / policy
        head = bench.start(f"balancer.policy={policy}", f"scheduler.schedule={schedule}", steps=4)
        expect_end(head, 0, [], within=60)
        expect_promised_memory(bench.metrics())


def memory_is_as_promised_and_the_prediction_is_traced(bench):
    head = bench.start("balancer.policy=deferral", "scheduler.schedule=split-1f1b", steps=4)
    expect_end(head, 0, [], within=60)
    expect_promised_memory(bench.metrics())
    slices = {}
    for name in ("trace.json", "predicted.json"):
        trace = json.loads((bench.run_dir / name).read_text(encoding="utf-8"))
        slices[name] = [event for event in trace if event.get("ph") == "X"]
    for step in range(1, 5):
        measured, predicted = ([event for event in slices[name] if event["args"]["step"] == step]
                               for name in ("trace.json", "predicted.json"))
        names = [sorted((event["pid"], event["name"]) for event in events) for events in (measured, predicted)]
        expect(names[0] and names[0] == names[1], f"step {step}: another set of actions was predicted")
        begins = [min(event["ts"] for event in events) for events in (measured, predicted)]
        expect(abs(begins[0] - begins[1]) < 1, f"step {step} begins at {begins[0]}, its prediction at {begins[1]} us")


if __name__ == "__main__":
    sys.exit(run_script(dict(globals())))
