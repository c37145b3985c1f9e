"""What stands in for Slurm's `srun` and `scontrol` in cluster_examples.py."""

# Like Slurm's: a task per machine, each a process group here. It ends with the largest exit code of its tasks; who has
# not ended `--wait` seconds after the first of them is killed, seconds that FAKE_WAIT_S makes shorter.
FAKE_SRUN = r"""#!/usr/bin/python3
import os, pathlib, signal, subprocess, sys, time
folder, count, words = pathlib.Path(os.environ["FAKE_SLURM"]), int(os.environ["SLURM_NTASKS"]), sys.argv[1:]
waits = [word for word in words if word.startswith("--wait=")]
while words[0].startswith("--"):
    words.pop(0)
tasks = []
for i in range(count):
    names = {"SLURM_NODEID": str(i), "SLURM_PROCID": str(i), "SLURM_STEP_NUM_NODES": str(count)}
    with open(folder / f"{i}.log", "w") as log:
        tasks.append(subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **names}, process_group=0))
    (folder / f"{i}.pid").write_text(str(tasks[i].pid))
while all(task.poll() is None for task in tasks):
    time.sleep(0.02)
wait_s = float(os.environ.get("FAKE_WAIT_S") or waits[0].split("=")[1])
last = time.monotonic() + wait_s
while any(task.poll() is None for task in tasks) and time.monotonic() < last:
    time.sleep(0.02)
for task in tasks:
    if task.poll() is None:
        os.killpg(task.pid, signal.SIGKILL)
        task.wait()
codes = [task.returncode if task.returncode >= 0 else 128 - task.returncode for task in tasks]
(folder / "codes").write_text(" ".join(map(str, codes)))
sys.exit(max(codes))
"""
FAKE_SCONTROL = '#!/usr/bin/env bash\necho "$*" >>"$FAKE_SLURM/scontrol"\n'
