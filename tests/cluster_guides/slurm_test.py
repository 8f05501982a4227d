"""The guide for Slurm, on Debian's Slurm between network namespaces: make clusters."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from absl.testing import absltest
from machines import Machines

from tests.waiting import wait_until

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_NODES = 2
_CONFIG = """
ClusterName=guide
SlurmctldHost=m0
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=m[1-{nodes}] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@absltest.skipUnless(shutil.which("slurmctld", path="/usr/sbin"), "apt-get install slurm-wlm")
class SlurmTest(absltest.TestCase):
    """Machine m0 has the controller, the others are nodes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.machines = cls.enterClassContext(Machines([f"m{i}" for i in range(1 + _NODES)]))
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (cls.folder / "slurm.conf").write_text(_CONFIG.format(folder=cls.folder, nodes=_NODES))
        # `ip netns exec` shows no control groups, which the first version would mount when needed.
        (cls.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (cls.folder / "munge.key").write_bytes(os.urandom(128))
        (cls.folder / "munge.key").chmod(0o400)
        cls.machines.start(
            0,
            *("munged", "--foreground", "--force", f"--key-file={cls.folder}/munge.key"),
            *(f"--socket={cls.folder}/munge.socket", f"--pid-file={cls.folder}/munge.pid"),
            *(f"--log-file={cls.folder}/munge.log", f"--seed-file={cls.folder}/munge.seed"),
        )
        wait_until((cls.folder / "munge.socket").exists, "munged listens")
        cls.environment = {
            **os.environ,
            "SLURM_CONF": f"{cls.folder}/slurm.conf",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        for machine, program in enumerate(["slurmctld", *["slurmd"] * _NODES]):
            cls.machines.start(machine, program, "-D", env=cls.environment)
        wait_until(lambda: cls.slurm("sinfo", "-h", "-o%t%D") == f"idle{_NODES}\n", "nodes idle")

    @classmethod
    def slurm(cls, *command):
        """Returns what a command of Slurm's writes."""
        result = subprocess.run(
            cls.machines.command(0, *command),
            cwd=_ROOT,
            env=cls.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return result.stdout + result.stderr

    def submit(self, *flags):
        """Returns the output of the guide's job."""
        output = self.folder / "job.out"
        job = ("sbatch", "--wait", f"--output={output}", *flags, "examples/clusters/slurm.sbatch")
        print(self.slurm(*job), end="")
        return output.read_text()

    def test_tasks_on_two_nodes_train_compressed(self):
        output = self.submit()
        print(output)
        for task in range(2):
            line = rf"{task}: worker {task} of 2: accuracy 0\.9\d+, 140 steps, \d+ bytes"
            self.assertRegex(output, line)

    def test_tasks_on_one_node_have_ports_of_their_own(self):
        output = self.submit("--nodes=1", "--ntasks-per-node=2")
        self.assertRegex(output, r"1: worker 1 of 2: accuracy 0\.9\d+")


if __name__ == "__main__":
    absltest.main()
