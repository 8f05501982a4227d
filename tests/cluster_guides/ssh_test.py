"""tf_gc-launch --hosts with a real ssh, between network namespaces: make clusters."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from absl.testing import absltest
from machines import Machines

from tests.waiting import wait_until

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TRAIN = str(_ROOT / "examples/clusters/train.py")
_SLEEP = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"

_SSHD_CONFIG = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PidFile none
ClientAliveInterval 10
SetEnv PYTHONPATH={python_path}
"""
_SSH_CONFIG = """
IdentityFile {folder}/key
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking accept-new
LogLevel ERROR
# What people have for themselves.
ControlMaster auto
ControlPath {folder}/%n
LocalForward 127.0.0.1:6006 127.0.0.1:6006
ExitOnForwardFailure yes
RequestTTY force
"""


def _is_alive(pid):
    return os.path.exists(f"/proc/{pid}")


@absltest.skipUnless(shutil.which("sshd", path="/usr/sbin"), "apt-get install openssh-server")
class SshTest(absltest.TestCase):
    """Machines m0 to m2 have an ssh server, m3 has none. tf_gc-launch runs on m0."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.machines = cls.enterClassContext(Machines(["m0", "m1", "m2", "m3"]))
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        facts = {"folder": cls.folder, "python_path": os.pathsep.join(filter(None, sys.path))}
        for name in ("host_key", "key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", cls.folder / name], check=True
            )
        (cls.folder / "sshd_config").write_text(_SSHD_CONFIG.format(**facts))
        (cls.folder / "ssh_config").write_text(_SSH_CONFIG.format(**facts))
        ssh = cls.folder / "bin/ssh"
        ssh.parent.mkdir()
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {cls.folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)
        os.makedirs("/run/sshd", exist_ok=True)
        for machine in range(3):
            sshd = ("/usr/sbin/sshd", "-D", "-f", str(cls.folder / "sshd_config"))
            cls.machines.start(machine, *sshd)
            wait_until(lambda machine=machine: cls.answers(machine), "sshd answers")

    @classmethod
    def answers(cls, machine):
        command = (str(cls.folder / "bin/ssh"), f"m{machine}", "true")
        return not subprocess.run(cls.machines.command(0, *command), check=False).returncode

    def launch(self, *arguments):
        """Returns a running tf_gc-launch on m0."""
        command = (sys.executable, "-m", "tf_gc.launch", *arguments)
        return self.enterContext(
            subprocess.Popen(
                self.machines.command(0, *command),
                cwd=_ROOT,
                env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def sleepers(self, *flags, hosts="m0,m1"):
        """Returns a running tf_gc-launch, and the process ids of its workers."""
        program = self.create_tempfile("sleep.py", _SLEEP).full_path
        process = self.launch(f"--hosts={hosts}", *flags, program)
        pids = dict(process.stdout.readline().rsplit(" pid ") for _ in range(2))
        return process, [int(pids[f"[worker {worker}]"]) for worker in range(2)]

    def test_two_machines_train_compressed(self):
        process = self.launch("--hosts=m0,m1", "--port=2222", _TRAIN)
        output, errors = process.communicate()
        self.assertEqual(process.returncode, 0, output + errors)
        print(output, errors)
        self.assertIn("[tf_gc-launch] worker 1 is at m1:2222\n", errors)
        for worker in range(2):
            line = rf"\[worker {worker}\] worker {worker} of 2: accuracy 0\.9\d+, 140 steps"
            self.assertRegex(output, line)

    def test_a_machine_without_ssh_is_named(self):
        process = self.launch("--hosts=m0,m3", _TRAIN)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(errors, r"host m3: .*Connection refused.*`ssh m3 true` must work")

    def test_ctrl_c_reaches_all_machines(self):
        process, pids = self.sleepers()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertEqual(errors.count("KeyboardInterrupt"), 2, output + errors)
        self.assertFalse(any(map(_is_alive, pids)))

    def test_a_worker_that_is_killed_ends_all(self):
        process, pids = self.sleepers("--grace=1")
        os.kill(pids[1], signal.SIGKILL)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 128 + signal.SIGKILL)
        self.assertIn("[tf_gc-launch] worker 1 failed first: exit code 137 on m1\n", errors)
        self.assertFalse(any(map(_is_alive, pids)))

    def test_a_machine_that_is_silent_is_lost(self):
        process, pids = self.sleepers("--grace=1", hosts="m0,m2")
        self.machines.network.cut(2)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 255)
        self.assertIn("worker 1 failed first: exit code 255 on m2, or lost\n", errors)
        self.assertFalse(_is_alive(pids[0]))
        wait_until(lambda: not _is_alive(pids[1]), "m2's own sshd has noticed")

    def test_nothing_outlives_a_launcher_that_is_killed(self):
        process, pids = self.sleepers()
        process.kill()
        wait_until(lambda: not any(map(_is_alive, pids)), "the workers have ended")


if __name__ == "__main__":
    absltest.main()
