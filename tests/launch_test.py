"""Behaviour of tf_gc-launch, with small programs in place of training."""

import contextlib
import io
import itertools
import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from unittest import mock

from absl.testing import absltest, parameterized

from tf_gc import launch, network_namespaces
from tf_gc.launch import gpus, output, processes, ssh, supervision

_PACKAGE_ROOT = pathlib.Path(launch.__file__).resolve().parents[2]
_LONG_SECONDS = 60.0

_PREAMBLE = """\
import json, os, pathlib, signal, socket, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]

def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

def wait_for_end(file):
    "Waits until the launcher knows of the end of the process that writes its number to a file."
    wait_until(lambda: file.exists() and file.read_text())
    wait_until(lambda: not os.path.exists("/proc/" + file.read_text()))
"""

# A server that tells whoever connects what it is.
_SERVER = """
import contextlib
cluster = config["cluster"]
host, port = cluster[config["task"]["type"]][index].split(":")
facts = [os.getpid(), os.readlink("/proc/self/ns/net"), config]
with socket.create_server((host, int(port))) as server:
    while True:
        with contextlib.suppress(ConnectionError), server.accept()[0] as connection:
            connection.sendall(json.dumps(facts).encode())
"""

# For the chief: its side of it.
_ASK = """
cluster = config["cluster"]

def ask(address, unlike=None):
    host, port = address.split(":")
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection((host, int(port))) as connection:
                pid, *others = json.load(connection.makefile())
            if pid != unlike:
                return pid, *others
        except (OSError, ValueError):
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)
"""

# The process says that it is there, then sleeps until a signal ends it.
_SLEEP = 'print("pid", os.getpid(), flush=True); time.sleep(600)'

_needs_namespaces = absltest.skipIf(
    network_namespaces.why_unavailable(),
    f"no network namespaces here: {network_namespaces.why_unavailable()}",
)


def _wait_until(condition):
    deadline = time.monotonic() + _LONG_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)


def _is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _children_of(pid, program):
    """Returns those whose command line names this program."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if program in pathlib.Path(f"/proc/{child}/cmdline").read_text()
    ]


def _namespaces_of(pid):
    return [path.name for path in pathlib.Path("/run/netns").glob(f"tf_gc-{pid}-*")]


class _LaunchTest(parameterized.TestCase):
    def write(self, body, name="program.py"):
        return self.create_tempfile(name, _PREAMBLE + textwrap.dedent(body)).full_path

    def run_program(self, body, **kwargs):
        """Returns the exit code and the lines of output of a launch in this process."""
        lines = []
        kwargs = {"workers": 2, "on_line": lines.append, **kwargs}
        return launch.launch([sys.executable, "-u", self.write(body)], **kwargs), lines

    def command_line(self, *arguments, **kwargs):
        """Runs tf_gc-launch to its end, in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "tf_gc.launch", *arguments],
            env=self.environment(),
            timeout=_LONG_SECONDS,
            check=False,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs},
        )

    @contextlib.contextmanager
    def background(self, body, *arguments, workers=2):
        """Yields a running tf_gc-launch and its workers' process ids, then kills what is left."""
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "tf_gc.launch", f"--workers={workers}"),
                *(*arguments, self.write(body)),
            ],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process, [int(process.stdout.readline().split()[-1]) for _ in range(workers)]
            finally:
                process.kill()

    def environment(self):
        path = [str(_PACKAGE_ROOT), *filter(None, sys.path)]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}

    def texts(self, lines, process):
        return [line.text for line in lines if line.process == process]


class ClusterTest(_LaunchTest):
    def test_every_process_finds_its_place_in_one_cluster(self):
        code, lines = self.run_program("print(json.dumps(config))", workers=3)
        configs = [json.loads(*self.texts(lines, f"worker {worker}")) for worker in range(3)]
        self.assertEqual(code, 0)
        self.assertEqual([config["task"]["index"] for config in configs], [0, 1, 2])
        self.assertEqual({config["task"]["type"] for config in configs}, {"worker"})
        endpoints = configs[0]["cluster"]["worker"]
        self.assertEqual([config["cluster"]["worker"] for config in configs], [endpoints] * 3)
        self.assertLen(set(endpoints), 3)

    def test_each_process_can_listen_on_its_address(self):
        listening = self.create_tempdir().full_path
        code, _ = self.run_program(
            f"""
            host, port = config["cluster"]["worker"][index].split(":")
            with socket.socket() as server:
                server.bind((host, int(port)))
                pathlib.Path({listening!r}, str(index)).touch()
                wait_until(lambda: len(os.listdir({listening!r})) == 2)
            """
        )
        self.assertEqual(code, 0)

    def test_processes_see_no_proxy(self):
        os.environ["https_proxy"] = os.environ["GRPC_PROXY"] = "http://localhost:1"
        self.addCleanup(os.environ.pop, "https_proxy")
        self.addCleanup(os.environ.pop, "GRPC_PROXY")
        _, lines = self.run_program(
            'print([name for name in os.environ if "proxy" in name.lower()])', workers=1
        )
        self.assertEqual(self.texts(lines, "worker 0"), ["[]"])

    def test_without_the_library_for_loopback_it_says_what_to_run(self):
        library = "/nowhere/preloaded.so"
        with (
            absltest.mock.patch.object(processes, "_PRELOADED", library),
            self.assertRaisesRegex(launch.LaunchError, f"{library} is missing.*setup.sh"),
        ):
            self.run_program("pass")

    @parameterized.parameters("a folder", "a:folder")
    def test_where_the_library_for_loopback_cannot_be_preloaded_it_says_what_to_do(self, folder):
        library = self.create_tempdir(folder).create_file("preloaded.so").full_path
        with (
            absltest.mock.patch.object(processes, "_PRELOADED", library),
            self.assertRaisesRegex(launch.LaunchError, f"{library} .* no space and no colon"),
        ):
            self.run_program("pass")

    @parameterized.parameters("workers", "ps", "gpus_per_worker", "max_restarts")
    def test_a_number_out_of_range_is_an_error(self, name):
        with self.assertRaisesRegex(ValueError, f"{name} is -1"):
            launch.launch(["true"], **{"workers": 1, name: -1})


class FreePortsTest(absltest.TestCase):
    def test_no_port_is_given_out_twice(self):
        program = "from tf_gc.launch import processes; import sys; processes.PORTS = range(18000, "
        program += "18100); print(*processes.free_ports(60), flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            taken = set(map(int, other.stdout.readline().split()))
            with mock.patch.object(processes, "PORTS", range(18000, 18100)):
                own = set(processes.free_ports(30))
            other.stdin.close()
        self.assertLen(taken, 60)
        self.assertEmpty(own & taken)

    def test_many_launches_of_a_program_leave_no_more_open_than_some(self):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(40):
            processes.free_ports(20)
        self.assertLess(len(os.listdir("/proc/self/fd")), before + 300)


class CommandLineTest(_LaunchTest):
    def test_arguments_after_the_program_are_its_own(self):
        program = self.write("print(sys.argv[1:])")
        result = self.command_line(program, "--workers", "7", "--help", "-m", "x", "--", "y z")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(
            result.stdout.decode(),
            "[worker 0] ['--workers', '7', '--help', '-m', 'x', '--', 'y z']\n",
        )

    def test_a_module_runs_as_with_python_m(self):
        result = self.command_line("--workers=2", "-m", "json.tool", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"[worker 1] usage:", result.stdout)

    def test_help_describes_every_flag(self):
        result = self.command_line("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"usage:", result.stdout)
        for flag in (
            "workers",
            "ps",
            "hosts",
            "port",
            "gpus_per_worker",
            "bandwidth",
            "latency",
            "link_changes",
            "grace",
            "max_restarts",
            "log_dir",
            "module, -m",
        ):
            self.assertIn(f"\n  --{flag}\n", result.stdout.decode())
        for subcommand in (
            "[flags] probe [--timeout_seconds 60]",
            "report [--output run.png] run.json",
            "versions",
        ):
            self.assertIn(f"tf_gc-launch {subcommand}\n", result.stdout.decode())

    @parameterized.parameters("-h", "--help")
    def test_help_of_the_probe_says_what_it_does(self, flag):
        result = self.command_line("--workers=2", "probe", flag)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertIn(b"usage: tf_gc-launch [flags] probe [--timeout_seconds 60]", result.stdout)
        self.assertIn(b"measures the links", result.stdout)

    @parameterized.parameters("probe", "report", "versions")
    def test_a_script_with_the_name_of_a_subcommand_can_be_run(self, name):
        program = self.write('print("the script")', name)
        result = self.command_line(f"./{name}", cwd=os.path.dirname(program))
        self.assertEqual(result.stdout, b"[worker 0] the script\n")

    @parameterized.parameters(
        ([], b"no program given"),
        (["absent.py"], b"no such file: absent.py"),
        (["--workers=0", __file__], b"--workers=0"),
        (["--ps=-1", __file__], b"--ps=-1"),
        (["--gpus_per_worker=-1", __file__], b"--gpus_per_worker=-1"),
        (["--hosts=a,,b", __file__], b"one of the names is empty"),
        (["--hosts=", __file__], b"one of the names is empty"),
        (["--hosts=a,a", "--port=65535", __file__], b"--port is 65535"),
        (["--port=2222", __file__], b"--port is for processes on hosts: leave it out"),
        (["--bandwidth=100mb", __file__], b"100mb"),
        (["--bandwidth=0gbit", __file__], b"0gbit"),
        (["--latency=5", __file__], b"latency '5' is not a time"),
        (["--grace=nan", __file__], b"--grace=nan"),
        (["--link_changes=absent.csv", __file__], b"absent.csv"),
        ([f"--link_changes={__file__}", __file__], b"must name the columns"),
        (["--wrokers=2", __file__], b"wrokers"),
        (["versions", "--all"], b"versions: unexpected argument: --all"),
        (["--hosts=a,b", "versions"], b"versions runs here alone: leave out --hosts"),
        (["--ps=1", "probe"], b"probe measures the links between workers: leave out --ps"),
    )
    def test_a_wrong_command_line_is_named_and_returns_2(self, arguments, message):
        result = self.command_line(*arguments)
        self.assertEqual(result.returncode, 2)
        self.assertIn(message, result.stderr)

    @parameterized.parameters(("stdout", ""), ("stderr", "2>&1 >/dev/null"))
    def test_no_reader_of_the_output_is_no_reason_to_leave_processes(self, stream, redirection):
        program = self.write(f'print("x\\n" * 100000, file=sys.{stream}); {_SLEEP}')
        result = subprocess.run(
            f"{sys.executable} -m tf_gc.launch {program} {redirection} | head -n 1; "
            "exit ${PIPESTATUS[0]}",
            shell=True,
            executable="/bin/bash",
            env={**self.environment(), "PYTHONUNBUFFERED": ""},
            stdout=subprocess.PIPE,
            timeout=_LONG_SECONDS,
            check=False,
        )
        self.assertEqual(result.stdout, b"[worker 0] x\n")
        self.assertEqual(result.returncode, 128 + signal.SIGPIPE)

    @parameterized.parameters(">&-", "2>&-", ">&- 2>&-")
    def test_it_starts_with_closed_streams(self, closed):
        path = self.create_tempfile("ran").full_path
        program = self.write(f'pathlib.Path({path!r}).write_text("x")')
        command = f"{sys.executable} -m tf_gc.launch {program} {closed}"
        code = subprocess.run(command, shell=True, env=self.environment(), check=False).returncode
        self.assertEqual((code, pathlib.Path(path).read_text()), (0, "x"))

    @parameterized.parameters("| tee log", "2>&1 | tee log")
    def test_after_ctrl_c_workers_may_finish_though_their_output_has_no_reader(self, pipe):
        """As Ctrl-C ends the program that reads it, too."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        program = self.write(
            f"""
            try:
                print("ready", flush=True)
                time.sleep(600)
            except KeyboardInterrupt:
                time.sleep(0.5)
                print("saving", flush=True)
                time.sleep(0.5)
                pathlib.Path({str(folder)!r}, f"saved-{{index}}").touch()
            """
        )
        shell = subprocess.Popen(
            f"{sys.executable} -m tf_gc.launch --workers=2 {program} {pipe}; "
            "exit ${PIPESTATUS[0]}",
            shell=True,
            executable="/bin/bash",
            env=self.environment(),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        log = folder / "log"
        _wait_until(lambda: log.exists() and log.read_text().count("ready") == 2)
        children = pathlib.Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text()
        for child in children.split():  # not the shell, which would have no exit code
            os.kill(int(child), signal.SIGINT)
        self.assertEqual(shell.wait(timeout=_LONG_SECONDS), 128 + signal.SIGINT)
        self.assertCountEqual(
            [path.name for path in folder.glob("saved-*")], ["saved-0", "saved-1"]
        )

    @parameterized.parameters(r"x\n", "x")
    def test_signals_reach_processes_whose_output_nobody_reads(self, printed):
        program = self.write(f'print("{printed}" * 200_000, flush=True); time.sleep(600)')
        with subprocess.Popen(
            [sys.executable, "-m", "tf_gc.launch", program],
            env={**self.environment(), "PYTHONUNBUFFERED": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.read(12), b"[worker 0] x")
            time.sleep(1)  # until the pipe is full
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=_LONG_SECONDS), 128 + signal.SIGTERM)


class OutputTest(_LaunchTest):
    @parameterized.parameters(0, 1, 2)
    def test_a_slow_reader_gets_the_last_words_of_the_launcher(self, phase):
        ready = itertools.cycle([phase == 0, phase == 1, phase == 2])
        body = """
            print("out")
            summary = {"steps": 1, "bytes_sent": 1, "values_sent": 8, "seconds": 1}
            pathlib.Path(os.environ["TF_GC_SUMMARY"] + ".json").write_text(json.dumps(summary))
            """
        with (
            mock.patch.object(output.Printer, "is_ready", lambda _: next(ready)),
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            self.run_program(body, workers=1, on_line=None)
        self.assertEqual(out.getvalue(), "[worker 0] out\n")
        self.assertStartsWith(said.getvalue(), "[tf_gc-launch] 1 steps: each worker sent")

    def test_lines_carry_the_worker_and_keep_their_stream(self):
        program = self.write('print("out", index); print("err", index, file=sys.stderr)')
        result = self.command_line("--workers=2", program)
        self.assertCountEqual(
            result.stdout.decode().splitlines(), ["[worker 0] out 0", "[worker 1] out 1"]
        )
        self.assertCountEqual(
            result.stderr.decode().splitlines(), ["[worker 0] err 0", "[worker 1] err 1"]
        )

    def test_a_line_written_in_parts_is_one_line(self):
        _, lines = self.run_program(
            """
            for part in ("one ", "line\\nlast ", "without end"):
                print(part, end="")
                time.sleep(0.2)
            """,
            workers=1,
        )
        self.assertEqual(self.texts(lines, "worker 0"), ["one line", "last without end"])

    def test_a_progress_bar_ends_as_one_line(self):
        _, lines = self.run_program(
            """
            for step in range(500):
                print(f"\\rstep {step}", end="")
            print("\\r\\nend\\r\\n", end="")
            """,
            workers=1,
        )
        texts = [text for text in self.texts(lines, "worker 0") if text]
        self.assertEqual(texts[-2:], ["step 499", "end"])
        self.assertLess(len(texts), 50)

    def test_bytes_that_are_not_text_do_not_stop_the_output(self):
        program = self.write('os.write(1, b"a\\xff\\xfe b\\n"); print("after")')
        result = self.command_line(program)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(
            result.stdout.decode(),
            "[worker 0] a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} b\n[worker 0] after\n",
        )

    def test_a_terminal_without_unicode_shows_all_it_can(self):
        program = self.write('os.write(1, "é\\n".encode()); print("after")')
        environment = {**self.environment(), "PYTHONIOENCODING": "ascii"}
        result = subprocess.run(
            [sys.executable, "-m", "tf_gc.launch", program],
            env=environment,
            capture_output=True,
            check=False,
        )
        self.assertIn(b"[worker 0] after\n", result.stdout)
        self.assertEqual(result.returncode, 0)

    def test_all_of_a_large_output_arrives(self):
        _, lines = self.run_program('print("\\n".join(map(str, range(50000))))')
        for worker in range(2):
            self.assertEqual(self.texts(lines, f"worker {worker}"), [str(i) for i in range(50000)])

    def test_a_long_line_is_printed_whole(self):
        result = self.command_line(self.write('print("é" * 100_000)'))
        self.assertEqual(result.stdout.decode(), "[worker 0] " + "é" * 100_000 + "\n")

    def test_a_long_line_is_cut_between_characters(self):
        _, lines = self.run_program('print("a" + "é" * 600_000)', workers=1)
        texts = self.texts(lines, "worker 0")
        self.assertEqual("".join(texts), "a" + "é" * 600_000)
        self.assertLen(texts, 2)

    def test_a_last_line_without_end_arrives_though_others_hold_the_pipe(self):
        _, lines = self.run_program(
            """
            subprocess.Popen(["sleep", "10"], start_new_session=True)
            print("the end", end="")
            """,
            workers=1,
        )
        self.assertEqual(self.texts(lines, "worker 0"), ["the end"])

    def test_log_files_hold_exactly_what_was_written(self):
        log_dir = self.create_tempdir().full_path
        self.run_program('os.write(index + 1, b"a\\rb\\xff %d" % index)', log_dir=log_dir)
        for index in range(2):
            log = pathlib.Path(log_dir, f"worker-{index}.log").read_bytes()
            self.assertEqual(log, b"a\rb\xff %d" % index)

    def test_a_log_on_a_full_disk_is_given_up_and_the_program_goes_on(self):
        log_dir = self.create_tempdir().full_path
        log = pathlib.Path(log_dir, "worker-0.log")
        log.symlink_to("/dev/full")
        code, lines = self.run_program(
            """
            for part in range(3):
                print(part, flush=True)
                time.sleep(0.2)
            """,
            workers=1,
            log_dir=log_dir,
        )
        self.assertEqual(code, 0)
        self.assertEqual(self.texts(lines, "worker 0"), ["0", "1", "2"])
        self.assertEqual(
            self.texts(lines, "tf_gc-launch"),
            [f"worker 0: its log {log} is not written any more: No space left on device"],
        )

    def test_output_to_a_full_disk_is_given_up_and_the_program_goes_on(self):
        done = pathlib.Path(self.create_tempdir().full_path, "done")
        program = self.write(f'print("x"); time.sleep(0.5); pathlib.Path({str(done)!r}).touch()')
        with open("/dev/full", "wb") as full:
            result = self.command_line(program, stdout=full)
        self.assertEqual(result.returncode, 0)
        self.assertTrue(done.exists())
        self.assertIn(b"output is not written any more: No space left on device", result.stderr)

    def test_a_folder_for_logs_that_cannot_be_written_is_named(self):
        file = self.create_tempfile("logs").full_path
        result = self.command_line(f"--log_dir={file}", self.write("pass"))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(
            result.stderr.decode(),
            f"tf_gc-launch: cannot write {file}: File exists: --log_dir must be a folder that "
            "this user may write to\n",
        )

    @parameterized.parameters(({}, True), ({"NO_COLOR": "1"}, False))
    def test_names_are_coloured_on_terminals_only_if_wanted(self, variables, coloured):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        with absltest.mock.patch.dict(os.environ, {"TERM": "xterm", **variables}):
            prefix = output._prefix(Terminal(), "worker 0", "cyan")
            plain = output._prefix(io.StringIO(), "worker 0", "cyan")
        self.assertEqual("\x1b[36m" in prefix, coloured)
        self.assertEqual(plain, "[worker 0] ")


class CoresTest(_LaunchTest):
    """How many threads TensorFlow may use in a process."""

    def threads(self, workers, **variables):
        """Returns how many each worker has for one op, as text."""
        inherited = {k: v for k, v in os.environ.items() if k != "TF_NUM_INTRAOP_THREADS"}
        with absltest.mock.patch.dict(os.environ, {**inherited, **variables}, clear=True):
            code, lines = self.run_program(
                'print(os.environ.get("TF_NUM_INTRAOP_THREADS"))', workers=workers
            )
        self.assertEqual(code, 0, lines)
        return [text for w in range(workers) for text in self.texts(lines, f"worker {w}")]

    @parameterized.parameters((7, 2, ["3"] * 2), (2, 3, ["1"] * 3), (7, 1, ["None"]))
    def test_processes_share_the_cores_that_the_launcher_may_use(self, cores, workers, expected):
        with absltest.mock.patch.object(os, "sched_getaffinity", return_value=set(range(cores))):
            self.assertEqual(self.threads(workers), expected)

    def test_a_number_that_is_set_stays(self):
        self.assertEqual(self.threads(2, TF_NUM_INTRAOP_THREADS="5"), ["5", "5"])


class MemoryTest(_LaunchTest):
    """What glibc keeps of freed memory."""

    @parameterized.parameters(
        ({}, "67108864 33554432 None"),
        ({"MALLOC_TOP_PAD_": "1"}, "1 None None"),
        ({"MALLOC_ARENA_MAX": "1"}, "None None 1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.top_pad=1"}, "None None None"),
    )
    def test_it_is_kept_unless_the_environment_says_otherwise(self, variables, expected):
        others = ("MALLOC_", "GLIBC_TUNABLES")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(others)}
        with absltest.mock.patch.dict(os.environ, {**inherited, **variables}, clear=True):
            code, lines = self.run_program(
                "print(*(os.environ.get(f'MALLOC_{name}') for name in "
                "('TOP_PAD_', 'MMAP_THRESHOLD_', 'ARENA_MAX')))",
                workers=1,
            )
        self.assertEqual(code, 0, lines)
        self.assertEqual(self.texts(lines, "worker 0"), [expected])

    @parameterized.parameters(({}, True), ({"MALLOC_ARENA_MAX": "4"}, False))
    def test_what_the_program_sets_by_itself_does_not_count(self, variables, is_kept):
        """TensorFlow 2.21 does this, where a dataset is made of a generator."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
        with absltest.mock.patch.dict(os.environ, {**inherited, **variables}, clear=True):
            _, lines = self.run_program(
                """
                import ctypes, resource
                c = ctypes.CDLL(None)
                c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
                c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
                c.mallopt(-3, 128 << 10)  # M_MMAP_THRESHOLD
                def fill():
                    block = c.malloc(1 << 20)
                    c.memset(block, 1, 1 << 20)
                    c.free(block)
                fill()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                for _ in range(10):
                    fill()
                print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
                """,
                workers=1,
            )
        [faults] = map(int, self.texts(lines, "worker 0"))
        self.assertEqual(faults < 500, is_kept, faults)


class GpusTest(_LaunchTest):
    """What workers see of GPUs; there need not be any."""

    def visible(self, workers=2, body='print(os.environ.get("CUDA_VISIBLE_DEVICES"))', **kwargs):
        """Returns CUDA_VISIBLE_DEVICES of each worker."""
        code, lines = self.run_program(body, workers=workers, **kwargs)
        self.assertEqual(code, 0, lines)
        return [text for w in range(workers) for text in self.texts(lines, f"worker {w}")]

    def set_variable(self, **variables):
        patch = absltest.mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)

    def install_nvidia_smi(self, body):
        """Makes a program of this name the first on the PATH, and no GPU named."""
        folder = self.create_tempdir()
        program = folder.create_file("nvidia-smi", f"#!/bin/sh\n{body}\n")
        os.chmod(program.full_path, 0o755)
        self.set_variable(PATH=f"{folder.full_path}:{os.environ['PATH']}")
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)

    @parameterized.parameters(
        (1, ["3", "GPU-7c1f"]), (2, ["3,GPU-7c1f", "0,5"]), (0, ["", ""]), (None, ["all"] * 2)
    )
    def test_each_worker_sees_its_own_of_those_that_the_launcher_sees(self, count, expected):
        named = "3, GPU-7c1f,0,5,-1,6"
        self.set_variable(CUDA_VISIBLE_DEVICES=named)
        expected = [named if names == "all" else names for names in expected]
        self.assertEqual(self.visible(gpus_per_worker=count), expected)

    def test_without_names_they_are_all_of_the_machine(self):
        self.install_nvidia_smi("for i in 0 1 2; do echo GPU $i: A100; echo '  MIG 1g.5gb'; done")
        self.assertEqual(self.visible(workers=3, gpus_per_worker=1), ["0", "1", "2"])

    def test_a_chief_and_parameter_servers_see_none(self):
        self.set_variable(CUDA_VISIBLE_DEVICES="4,5")
        tasks = processes.cluster_tasks(workers=2, ps=1)
        visible = gpus.gpus_of_tasks(tasks, 1)
        self.assertEqual(
            {task.name: visible[task] for task in tasks},
            {"worker 0": "4", "worker 1": "5", "ps 0": "", "chief": ""},
        )

    def test_too_few_gpus_are_named_and_return_2(self):
        self.set_variable(CUDA_VISIBLE_DEVICES="0,-1")
        result = self.command_line("--workers=2", "--gpus_per_worker=1", __file__)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(
            result.stderr.decode(),
            "tf_gc-launch: --gpus_per_worker is 1: 2 workers need 2 GPUs, and CUDA_VISIBLE_DEVICES "
            "('0,-1') has 1\n",
        )

    @parameterized.parameters(
        ("echo GPU 0: H100", "need 4 GPUs, and nvidia-smi finds 1"),
        ("exit 9", "cannot be run; CUDA_VISIBLE_DEVICES may name them"),
    )
    def test_too_few_gpus_in_the_machine_are_an_error(self, body, message):
        self.install_nvidia_smi(body)
        with self.assertRaisesRegex(ValueError, f"gpus_per_worker is 2: .*{message}"):
            self.visible(gpus_per_worker=2)


class FailureTest(_LaunchTest):
    def test_the_first_failure_is_reported_and_its_exit_code_returned(self):
        first = pathlib.Path(self.create_tempdir().full_path, "pid")
        code, lines = self.run_program(
            f"""
            first = pathlib.Path({str(first)!r})
            if index == 1:
                first.write_text(str(os.getpid()))
                sys.exit(7)
            wait_for_end(first)
            sys.exit(3)
            """
        )
        self.assertEqual(code, 7)
        self.assertEqual(self.texts(lines, "tf_gc-launch"), ["worker 1 failed first: exit code 7"])

    def test_a_killed_worker_is_reported_by_its_signal(self):
        code, lines = self.run_program(
            """
            if index == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            """
        )
        self.assertEqual(code, 128 + signal.SIGKILL)
        self.assertEqual(
            self.texts(lines, "tf_gc-launch"), ["worker 0 failed first: killed by SIGKILL"]
        )

    def test_a_signal_without_a_name_is_reported_by_its_number(self):
        code, lines = self.run_program("os.kill(os.getpid(), 35)", workers=1)
        self.assertEqual(code, 128 + 35)
        self.assertEqual(
            self.texts(lines, "tf_gc-launch"), ["worker 0 failed first: killed by signal 35"]
        )

    def test_survivors_have_time_to_say_what_they_noticed(self):
        first = pathlib.Path(self.create_tempdir().full_path, "pid")
        code, lines = self.run_program(
            f"""
            first = pathlib.Path({str(first)!r})
            if index == 0:
                first.write_text(str(os.getpid()))
                sys.exit(1)
            wait_for_end(first)
            print("noticed")
            """,
            grace=_LONG_SECONDS,
        )
        self.assertEqual(code, 1)
        self.assertEqual(self.texts(lines, "worker 1"), ["noticed"])

    def test_survivors_that_notice_nothing_are_terminated(self):
        code, lines = self.run_program(
            "sys.exit(5) if index == 1 else time.sleep(600)", workers=3, grace=0.2
        )
        self.assertEqual(code, 5)
        self.assertIn("sending SIGTERM to worker 0, worker 2", self.texts(lines, "tf_gc-launch"))

    def test_survivors_that_ignore_termination_are_killed(self):
        ready = pathlib.Path(self.create_tempdir().full_path, "ready")
        with absltest.mock.patch.object(supervision, "_KILL_SECONDS", 0.2):
            code, lines = self.run_program(
                f"""
                ready = pathlib.Path({str(ready)!r})
                if index == 0:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                    ready.touch()
                    time.sleep(600)
                wait_until(ready.exists)
                sys.exit(5)
                """,
                grace=0.2,
            )
        self.assertEqual(code, 5)
        self.assertIn("sending SIGKILL to worker 0", self.texts(lines, "tf_gc-launch"))

    def test_a_program_that_cannot_start_leaves_nothing(self):
        with self.assertRaises(FileNotFoundError):
            launch.launch(["/nonexistent/program"], workers=2)

    def test_children_of_a_worker_do_not_outlive_it(self):
        _, lines = self.run_program('print(subprocess.Popen(["sleep", "600"]).pid)', workers=1)
        _wait_until(lambda: not _is_alive(int(*self.texts(lines, "worker 0"))))

    def test_a_launch_works_outside_the_main_thread(self):
        codes = []
        thread = threading.Thread(
            target=lambda: codes.append(self.run_program("sys.exit(index * 4)")[0])
        )
        thread.start()
        thread.join()
        self.assertEqual(codes, [4])


class RestartTest(_LaunchTest):
    """Without parameter servers: a job is started again as a whole."""

    def run_in_turn(self, *bodies, **kwargs):
        """Runs each body at another start of the workers, which are 2."""
        starts = self.create_tempdir().full_path
        branches = "".join(
            f"if start == {start}:\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
            for start, body in enumerate(bodies)
        )
        return self.run_program(
            f"""
starts = pathlib.Path({starts!r}, str(index))
start = len(starts.read_text()) if starts.exists() else 0
print("start", start, config["cluster"])
starts.write_text("x" * (start + 1))
{branches}
""",
            **kwargs,
        )

    def starts(self, lines, worker):
        return [t for t in self.texts(lines, f"worker {worker}") if t.startswith("start")]

    def test_all_workers_start_again_at_their_addresses_when_one_is_killed(self):
        code, lines = self.run_in_turn(
            """
            if index == 1:
                wait_until(starts.with_name("0").exists)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
            """,
            "print('done')",
            max_restarts=1,
            grace=0.2,
        )
        self.assertEqual(code, 0)
        self.assertEqual(
            self.texts(lines, "tf_gc-launch"),
            [
                "worker 1 failed first: killed by SIGKILL",
                "sending SIGTERM to worker 0",
                "all workers start again",
            ],
        )
        clusters = set()
        for worker in range(2):
            first, second = self.starts(lines, worker)
            self.assertStartsWith(first, "start 0 ")
            self.assertStartsWith(second, "start 1 ")
            clusters |= {first[8:], second[8:]}
            self.assertEqual(self.texts(lines, f"worker {worker}")[-1], "done")
        self.assertLen(clusters, 1)

    def test_those_that_had_ended_start_again_too(self):
        code, lines = self.run_in_turn("sys.exit(index)", "pass", max_restarts=1)
        self.assertEqual(code, 0)
        self.assertLen(self.starts(lines, 0), 2)

    def test_the_exit_code_is_that_of_the_last_start(self):
        code, lines = self.run_in_turn(
            "sys.exit(5)", "sys.exit(6)", "sys.exit(7)", "pass", max_restarts=2
        )
        self.assertEqual(code, 7)
        self.assertEqual(self.texts(lines, "tf_gc-launch").count("all workers start again"), 2)

    def test_by_default_nothing_starts_again(self):
        code, lines = self.run_in_turn("sys.exit(5)", "pass")
        self.assertEqual(code, 5)
        self.assertLen(self.starts(lines, 0), 1)

    def test_a_launch_that_is_told_to_stop_starts_nothing_again(self):
        lines = []

        def on_line(line):
            lines.append(line)
            if line.text == "ready":
                os.kill(os.getpid(), signal.SIGTERM)

        code, _ = self.run_in_turn(
            "print('ready'); time.sleep(600)", "pass", workers=1, max_restarts=3, on_line=on_line
        )
        self.assertEqual(code, 128 + signal.SIGTERM)
        self.assertLen(self.starts(lines, 0), 1)

    def test_starts_leave_no_descriptor_open(self):
        counts = []

        def on_line(line):
            if line.text == "all workers start again":
                counts.append(len(os.listdir("/proc/self/fd")))

        self.run_in_turn(*["sys.exit(5)"] * 13, max_restarts=12, on_line=on_line)
        self.assertLen(counts, 12)
        # Two processes that have ended may have four pipes whose end has not been read yet.
        self.assertLessEqual(counts[-1] - counts[0], 4)

    def test_the_log_has_all_starts(self):
        log_dir = self.create_tempdir().full_path
        self.run_in_turn("sys.exit(5)", "pass", log_dir=log_dir, max_restarts=1)
        log = pathlib.Path(log_dir, "worker-0.log").read_text()
        self.assertRegex(log, r"\Astart 0 .*\nstart 1 .*\n\Z")


class ServersTest(_LaunchTest):
    """Small programs stand in for the servers too; tests/server_test.py has real ones."""

    def run_chief(self, body, server=_SERVER, **kwargs):
        """Returns the exit code and the lines of output of a launch with servers."""
        command = [sys.executable, "-u", self.write(server, "server.py")]
        with (
            absltest.mock.patch.object(supervision, "_SERVER", command),
            absltest.mock.patch.object(supervision, "_RESTART_SECONDS", 0.25),
        ):
            return self.run_program(_ASK + textwrap.dedent(body), ps=1, **kwargs)

    def check_one_cluster(self, **kwargs):
        """Checks each process's place; returns the network namespaces."""
        code, lines = self.run_chief(
            """
            print(json.dumps([os.getpid(), os.readlink("/proc/self/ns/net"), config]))
            for address in cluster["worker"] + cluster["ps"]:
                print(json.dumps(ask(address)))
            """,
            **kwargs,
        )
        self.assertEqual(code, 0)
        pids, namespaces, configs = zip(
            *(json.loads(text) for text in self.texts(lines, "chief")), strict=True
        )
        self.assertEqual(
            [(config["task"]["type"], config["task"]["index"]) for config in configs],
            [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)],
        )
        cluster = configs[0]["cluster"]
        self.assertEqual([config["cluster"] for config in configs], [cluster] * 4)
        sizes = {job: len(addresses) for job, addresses in cluster.items()}
        self.assertEqual(sizes, {"worker": 2, "ps": 1, "chief": 1})
        self.assertLen({address for addresses in cluster.values() for address in addresses}, 4)
        self.assertFalse(any(map(_is_alive, pids)))
        self.assertEmpty(self.texts(lines, "tf_gc-launch"))
        return namespaces

    def test_the_program_runs_once_among_servers_which_end_with_it(self):
        self.assertLen(set(self.check_one_cluster()), 1)

    @_needs_namespaces
    def test_with_a_bandwidth_every_process_has_a_network_of_its_own(self):
        self.assertLen(set(self.check_one_cluster(bandwidth="100mbit")), 4)

    @parameterized.parameters(
        ("sys.exit(7)", 7, "exit code 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL, "killed by SIGKILL"),
    )
    def test_the_exit_code_is_that_of_the_chief(self, body, code, words):
        actual_code, lines = self.run_chief(body)
        self.assertEqual(actual_code, code)
        self.assertEqual(self.texts(lines, "tf_gc-launch"), [f"chief failed: {words}"])

    def test_a_worker_that_was_killed_comes_back_at_its_address(self):
        code, lines = self.run_chief(
            """
            pid, *place = ask(cluster["worker"][1])
            os.kill(pid, signal.SIGKILL)
            _, *new_place = ask(cluster["worker"][1], unlike=pid)
            assert new_place == place
            """
        )
        self.assertEqual(code, 0)
        self.assertEqual(
            self.texts(lines, "tf_gc-launch"),
            ["worker 1 ended: killed by SIGKILL; it starts again in 0.25 s"],
        )

    def test_training_goes_on_without_a_worker_that_ends_again_and_again(self):
        log_dir = self.create_tempdir().full_path
        code, lines = self.run_chief(
            f"""
            log = pathlib.Path({log_dir!r}, "worker-0.log")
            wait_until(lambda: log.read_text().count("\\n") == 3)  # a line may come in parts
            wait_until(lambda: not os.path.exists("/proc/" + log.read_text().split()[-1]))
            print("done")
            """,
            server=f"""
print("started", os.getpid())
if config["task"] == {{"type": "worker", "index": 0}}:
    sys.exit(3)
{_SERVER}
""",
            grace=0.1,
            max_restarts=2,
            log_dir=log_dir,
        )
        self.assertEqual(code, 0)
        self.assertEqual(
            self.texts(lines, "tf_gc-launch"),
            [
                "worker 0 ended: exit code 3; it starts again in 0.25 s",
                "worker 0 ended: exit code 3; it starts again in 0.25 s",
                "worker 0 ended: exit code 3; a training that has begun goes on without it",
            ],
        )
        logs = {path.name: path.read_text() for path in pathlib.Path(log_dir).iterdir()}
        starts = {"worker-0.log": 3, "worker-1.log": 1, "ps-0.log": 1}
        self.assertEqual(logs.pop("chief.log"), "done\n")
        self.assertCountEqual(logs, starts)
        for name, times in starts.items():
            self.assertRegex(logs[name], rf"\A(started \d+\n){{{times}}}\Z")

    @parameterized.parameters("ps", "worker")
    def test_a_chief_that_waits_for_a_lost_server_is_terminated(self, task_type):
        code, lines = self.run_chief(
            f"""
            os.kill(ask(cluster[{task_type!r}][0])[0], signal.SIGKILL)
            time.sleep(600)
            """,
            workers=1,
            grace=0.2,
            max_restarts=0,
        )
        self.assertEqual(code, 128 + signal.SIGTERM)
        self.assertEqual(
            self.texts(lines, "tf_gc-launch"),
            [
                f"{task_type} 0 ended: killed by SIGKILL; training cannot go on without it",
                "sending SIGTERM to chief",
                "chief failed: killed by SIGTERM",
            ],
        )

    def test_servers_that_ignore_termination_are_killed(self):
        with absltest.mock.patch.object(supervision, "_KILL_SECONDS", 0.2):
            code, lines = self.run_chief(
                'print(ask(cluster["ps"][0])[0])',
                server="signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _SERVER,
            )
        self.assertEqual(code, 0)
        self.assertFalse(_is_alive(int(*self.texts(lines, "chief"))))

    def test_the_chief_may_finish_its_work_after_ctrl_c_with_its_servers(self):
        lines = []

        def on_line(line):
            lines.append(line)
            if line.text == "ready":
                os.kill(os.getpid(), signal.SIGINT)

        code, _ = self.run_chief(
            """
            try:
                ask(cluster["ps"][0])
                print("ready")
                time.sleep(600)
            except KeyboardInterrupt:
                time.sleep(1)
                ask(cluster["ps"][0])
                print("saved")
            """,
            on_line=on_line,
        )
        self.assertEqual(code, 128 + signal.SIGINT)
        self.assertEqual(self.texts(lines, "chief"), ["ready", "saved"])
        self.assertEqual(
            self.texts(lines, "tf_gc-launch"),
            [
                "SIGINT: it is forwarded; a second one kills what does not end",
                "sending SIGINT to chief",
            ],
        )


# Of these machines "bare" has no tf_gc and "gone" no ssh; what it runs elsewhere runs here.
_SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
case "$2" in
gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255 ;;
bare) echo "sh: 1: exec: python: not found" >&2; exit 127 ;;
hung) exec sleep 600 ;;
stuck) case "$3" in *tf_gc.launch.remote*) exec sleep 600 ;; esac ;;
esac
exec sh -c "$3"
"""


class HostsTest(_LaunchTest):
    """With a program in place of ssh; tests/cluster_guides/ssh_test.py has a real one."""

    def setUp(self):
        super().setUp()
        folder = self.create_tempdir()
        os.chmod(folder.create_file("ssh", _SSH).full_path, 0o755)
        patch = absltest.mock.patch.dict(
            os.environ, self.environment(), PATH=f"{folder.full_path}:{os.environ['PATH']}"
        )
        patch.start()
        self.addCleanup(patch.stop)

    def cluster(self, **kwargs):
        """Returns the cluster that all processes see, and what the launcher says."""
        code, lines = self.run_program("print(json.dumps(config))", **kwargs)
        self.assertEqual(code, 0, lines)
        configs = [json.loads(line.text) for line in lines if line.stream == "stdout"]
        self.assertLen({json.dumps(config["cluster"]) for config in configs}, 1)
        return configs[0]["cluster"], self.texts(lines, "tf_gc-launch")

    def test_workers_are_on_the_hosts_in_turn_at_the_port_and_those_behind_it(self):
        cluster, said = self.cluster(workers=3, hosts=["a", "user@b"], port=2222)
        self.assertEqual(cluster, {"worker": ["a:2222", "b:2222", "a:2223"]})
        self.assertEqual(
            said, ["worker 0 is at a:2222", "worker 1 is at b:2222", "worker 2 is at a:2223"]
        )

    def test_without_a_port_each_process_of_a_host_has_a_free_one(self):
        cluster, _ = self.cluster(workers=2, hosts=["::1"])
        ports = [int(address.removeprefix("[::1]:")) for address in cluster["worker"]]
        self.assertLen(set(ports), 2)
        self.assertContainsSubset(ports, processes.PORTS)

    def test_servers_and_the_chief_are_on_hosts_too(self):
        server = [sys.executable, "-u", self.write(_SERVER, "server.py")]
        with absltest.mock.patch.object(supervision, "_SERVER", server):
            cluster, _ = self.cluster(workers=2, ps=1, hosts=["a", "b"], port=1)
        self.assertEqual(cluster, {"worker": ["a:1", "b:1"], "ps": ["a:2"], "chief": ["a:3"]})

    def test_each_host_runs_a_worker_in_this_directory_with_untouched_arguments(self):
        program = self.write("print(os.getcwd(), sys.argv[1:])")
        folder = os.path.realpath(self.create_tempdir("it's $HOME").full_path)
        result = self.command_line("--hosts=a,b", program, "it's", "$HOME; *", "", cwd=folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        expected = f"""{folder} ["it's", '$HOME; *', '']"""
        self.assertCountEqual(
            result.stdout.decode().splitlines(), [f"[worker {i}] {expected}" for i in range(2)]
        )

    @parameterized.parameters(
        ("gone", "No route to host (`ssh gone true` must work, and ask nothing)"),
        ("bare", f"exec: python: not found (it must have {os.getcwd()}, and tf_gc in"),
    )
    def test_a_host_that_cannot_run_it_is_named_and_nothing_starts(self, host, message):
        result = self.command_line(f"--hosts=a,{host}", self.write("print(1)"))
        self.assertEqual(result.returncode, 1)
        self.assertStartsWith(result.stderr.decode(), f"tf_gc-launch: host {host}: ")
        self.assertIn(message, result.stderr.decode())
        self.assertEmpty(result.stdout)

    def test_a_host_that_hangs_is_named(self):
        with (
            mock.patch.object(ssh, "_ANSWER_SECONDS", 1.0),
            self.assertRaisesRegex(launch.LaunchError, "hung has not answered for 1 s"),
        ):
            self.run_program("pass", hosts=["hung"])

    @parameterized.parameters(signal.SIGINT, signal.SIGTERM)
    def test_a_signal_while_a_host_is_asked_ends_the_launch(self, number):
        timer = threading.Timer(0.5, os.kill, (os.getpid(), number))
        timer.start()
        code, lines = self.run_program('print("started")', hosts=["hung"])
        self.assertEqual((code, lines), (128 + number, []))

    def test_two_users_of_a_host_do_not_get_the_same_port(self):
        cluster, _ = self.cluster(workers=2, hosts=["root@a", "a"], port=2222)
        self.assertEqual(cluster, {"worker": ["a:2222", "a:2223"]})

    def test_the_end_of_one_ends_all(self):
        code, lines = self.run_program(
            "sys.exit(7) if index == 1 else time.sleep(600)", hosts=["a", "b"], grace=0.2
        )
        self.assertEqual(code, 7)
        self.assertEqual(
            self.texts(lines, "tf_gc-launch")[2:],
            ["worker 1 failed first: exit code 7 on b", "sending SIGTERM to worker 0"],
        )

    def test_workers_may_finish_their_work_after_ctrl_c(self):
        body = f"""
            try:
                {_SLEEP}
            except KeyboardInterrupt:
                print("saved")
            """
        with self.background(body, "--hosts=a,b") as (process, pids):
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=_LONG_SECONDS)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertCountEqual(output.splitlines(), ["[worker 0] saved", "[worker 1] saved"])
        self.assertFalse(any(map(_is_alive, pids)))

    def test_a_host_that_is_stuck_ends_with_the_others(self):
        code, _ = self.run_program("sys.exit(7)", hosts=["a", "stuck"], grace=0.2)
        self.assertEqual(code, 7)

    def test_a_killed_launcher_leaves_no_worker(self):
        with self.background(_SLEEP, "--hosts=a,b") as (process, pids):
            process.kill()
            process.wait()
            _wait_until(lambda: not any(map(_is_alive, pids)))

    @parameterized.parameters(
        {"bandwidth": "1gbit"},
        {"latency": "1ms"},
        {"link_changes": [launch.LinkChange(0, "1mbit")]},
        {"gpus_per_worker": 0},
    )
    def test_what_is_for_this_machine_alone_is_an_error(self, **kwargs):
        with self.assertRaisesRegex(ValueError, f"{next(iter(kwargs))} is for .*, not on hosts"):
            launch.launch(["true"], workers=1, hosts=["a"], **kwargs)


class LinkChangesTest(_LaunchTest):
    def read(self, text):
        content = text.encode(errors="surrogateescape")
        return launch.read_link_changes(self.create_tempfile("links.csv", content).full_path)

    def test_a_line_is_a_change_and_an_empty_field_none(self):
        self.assertEqual(
            self.read(
                "seconds,bandwidth,latency,process\n"
                "0,100mbit,1ms,\n"
                "2.5, 10mbit,,worker 1\n"
                "\n"
                "60,,20ms\n"
            ),
            [
                launch.LinkChange(0.0, "100mbit", "1ms"),
                launch.LinkChange(2.5, bandwidth="10mbit", process="worker 1"),
                launch.LinkChange(60.0, latency="20ms"),
            ],
        )

    def test_a_byte_order_mark_is_no_part_of_the_columns(self):
        text = "\ufeffseconds,bandwidth\n3,5mbit\n"
        self.assertEqual(self.read(text), [launch.LinkChange(3, "5mbit", None)])

    def test_changes_may_come_from_a_pipe(self):
        result = self.command_line(
            *("--link_changes=/dev/stdin", self.write("pass")), input=b"seconds,bandwidth\n0,1mb\n"
        )
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"/dev/stdin:2: bandwidth '1mb'", result.stderr)
        changes = b"seconds,bandwidth,process\n0,1mbit,worker 7\n"
        result = self.command_line("--link_changes=/dev/stdin", self.write("pass"), input=changes)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"one is of 'worker 7'", result.stderr)

    def test_columns_may_be_absent_and_in_any_order(self):
        self.assertEqual(self.read("latency,seconds\n5ms,3\n"), [launch.LinkChange(3, None, "5ms")])

    @parameterized.parameters(
        ("", ":1: must name the columns"),
        ("0,100mbit,5ms\n", ":1: must name the columns"),
        ("seconds,process\n", ":1: must name the columns"),
        ("seconds,bandwidth,speed\n", ":1: must name the columns"),
        ("seconds,bandwidth\n", "has no changes"),
        ("seconds,bandwidth\nsoon,1mbit\n", ":2: seconds is 'soon', must be a number"),
        ("seconds,bandwidth\n-1,1mbit\n", ":2: seconds is '-1'"),
        ("seconds,bandwidth\ninf,1mbit\n", ":2: seconds is 'inf'"),
        ("seconds,bandwidth\n,1mbit\n", ":2: seconds is ''"),
        ("seconds,bandwidth\n0,1mbit\n1,fast\n", ":3: bandwidth 'fast' is not a rate"),
        ("seconds,latency\n0,5\n", ":2: latency '5' is not a time"),
        ("seconds,latency\n0,5ms,9\n", ":2: has more fields than columns"),
        ("seconds,latency\n0,\n", ":2: changes neither bandwidth nor latency"),
        ("seconds,latency\n0,5\udc80\n", "links.csv: 'utf-8' codec can't decode"),
    )
    def test_the_error_says_which_line_is_wrong(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            self.read(text)

    def test_a_field_that_is_too_long_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "links.csv: field larger than"):
            self.read(f"seconds,latency\n{'0' * 200_000},5ms\n")

    def test_a_change_of_a_process_that_does_not_exist_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "'worker 2'.*none of.*worker 0, worker 1$"):
            self.run_program("pass", link_changes=[launch.LinkChange(0, "1mbit", None, "worker 2")])


class SignalTest(_LaunchTest):
    def test_a_launcher_whose_parent_ignores_the_ends_of_children_sees_those_of_its_own(self):
        body = """
            time.sleep(index)
            print("saved", signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)
            sys.exit(3 * index)
            """
        launcher = [sys.executable, "-m", "tf_gc.launch", "--workers=2", self.write(body)]
        program = (
            "import os, signal\n"
            "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
            f"os.execv({sys.executable!r}, {launcher!r})"
        )
        result = subprocess.run(
            [sys.executable, "-c", program],
            env=self.environment(),
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LONG_SECONDS,
            check=False,
        )
        self.assertEqual(result.returncode, 3)
        self.assertCountEqual(
            result.stdout.splitlines(), ["[worker 0] saved True", "[worker 1] saved True"]
        )

    @parameterized.parameters(signal.SIGINT, signal.SIGTERM)
    def test_a_signal_reaches_every_worker(self, number):
        with self.background(_SLEEP, workers=3) as (process, pids):
            process.send_signal(number)
            _, errors = process.communicate(timeout=_LONG_SECONDS)
        self.assertEqual(process.returncode, 128 + number)
        self.assertIn(f"sending {number.name} to worker 0, worker 1, worker 2", errors)
        self.assertFalse(any(map(_is_alive, pids)))

    def test_workers_may_finish_their_work_after_ctrl_c(self):
        body = f"""
            try:
                {_SLEEP}
            except KeyboardInterrupt:
                time.sleep(1)
                print("saved")
            """
        with self.background(body) as (process, _):
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=_LONG_SECONDS)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertCountEqual(output.splitlines(), ["[worker 0] saved", "[worker 1] saved"])

    @parameterized.parameters(signal.SIGTERM, signal.SIGHUP)
    def test_a_signal_that_is_repeated_at_once_is_one(self, number):
        """As a shell does that ends, and timeout."""
        lines = []

        def on_line(line):
            lines.append(line)
            if line.text == "ready" or line.text.startswith("sending"):
                os.kill(os.getpid(), number)

        body = f"""
            def save(*unused):
                time.sleep(1)
                print("saved")
                sys.exit()

            signal.signal(signal.{number.name}, save)
            print("ready")
            {_SLEEP}
            """
        code, _ = self.run_program(body, workers=1, on_line=on_line)
        self.assertEqual(code, 128 + number)
        self.assertEqual(self.texts(lines, "worker 0")[-1], "saved")
        _, *sent = self.texts(lines, "tf_gc-launch")
        self.assertEqual(sent, [f"sending {number.name} to worker 0"])

    def test_after_a_signal_workers_have_the_time_that_they_need(self):
        lines = []

        def on_line(line):
            lines.append(line)
            if line.text == "ready":
                os.kill(os.getpid(), signal.SIGTERM)

        body = f"""
            def save(*unused):
                time.sleep(1)
                print("saved")
                sys.exit(42)

            signal.signal(signal.SIGTERM, save)
            print("ready")
            {_SLEEP}
            """
        with mock.patch.object(supervision, "_KILL_SECONDS", 0.2):
            code, _ = self.run_program(body, workers=1, on_line=on_line)
        self.assertEqual(code, 128 + signal.SIGTERM)
        self.assertEqual(self.texts(lines, "worker 0")[-1], "saved")

    def test_who_stays_when_others_have_ended_after_a_signal_is_terminated(self):
        lines = []

        def on_line(line):
            lines.append(line)
            if line.text == "ready":
                os.kill(os.getpid(), signal.SIGINT)

        body = f"""
            if index == 0:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                print("ready")
            {_SLEEP}
            """
        code, _ = self.run_program(body, grace=0.2, on_line=on_line)
        self.assertEqual(code, 128 + signal.SIGINT)
        self.assertIn("sending SIGTERM to worker 0", self.texts(lines, "tf_gc-launch"))

    def test_a_terminal_that_is_gone_keeps_no_signal_from_the_workers(self):
        saved = pathlib.Path(self.create_tempdir().full_path, "saved")
        program = self.write(
            f"""
            def save(*unused):
                pathlib.Path({str(saved)!r}).touch()
                sys.exit()

            signal.signal(signal.SIGHUP, save)
            print("ready", flush=True)
            {_SLEEP}
            """
        )
        terminal, end = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "tf_gc.launch", program],
            env=self.environment(),
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)
        self.assertIn(b"ready", os.read(terminal, 1000))
        os.close(terminal)
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(timeout=_LONG_SECONDS), 128 + signal.SIGHUP)
        self.assertTrue(saved.exists())

    def test_a_second_ctrl_c_kills(self):
        with self.background(f"signal.signal(signal.SIGINT, signal.SIG_IGN); {_SLEEP}") as (
            process,
            pids,
        ):
            process.send_signal(signal.SIGINT)
            self.assertIn("SIGINT: it is forwarded", process.stderr.readline())
            self.assertIn("sending SIGINT", process.stderr.readline())
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=_LONG_SECONDS)
        self.assertIn("sending SIGKILL to worker 0, worker 1", errors)
        self.assertFalse(any(map(_is_alive, pids)))

    def test_a_killed_launcher_leaves_no_worker(self):
        with self.background(f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {_SLEEP}") as (
            process,
            pids,
        ):
            process.kill()
            process.wait()
            _wait_until(lambda: not any(map(_is_alive, pids)))

    def test_a_killed_launcher_leaves_nothing_that_workers_have_started_and_no_folder(self):
        body = f"""
            child = subprocess.Popen(["sleep", "600"])
            folder = pathlib.Path(os.environ["TF_GC_SUMMARY"]).parent
            pathlib.Path(sys.argv[0] + f".{{index}}").write_text(f"{{child.pid}} {{folder}}")
            {_SLEEP}
            """
        with self.background(body) as (process, _):
            program = self.write(body)
            written = [pathlib.Path(f"{program}.{index}").read_text().split() for index in range(2)]
            process.kill()
            process.wait()
        for child, folder in written:
            _wait_until(lambda child=child: not _is_alive(int(child)))
            _wait_until(lambda folder=folder: not os.path.exists(folder))


class BandwidthUnavailableTest(_LaunchTest):
    def test_without_the_tools_it_says_what_to_install(self):
        with (
            absltest.mock.patch.object(network_namespaces.shutil, "which", return_value=None),
            self.assertRaisesRegex(
                network_namespaces.NetworkNamespaceError, "apt-get install iproute2"
            ),
        ):
            self.run_program("pass", bandwidth="100mbit")

    def test_without_root_it_says_how_to_become_it(self):
        with (
            absltest.mock.patch.object(network_namespaces, "_tool", return_value="true"),
            absltest.mock.patch.object(os, "geteuid", return_value=1000),
            self.assertRaisesRegex(network_namespaces.NetworkNamespaceError, "sudo"),
        ):
            self.run_program("pass", bandwidth="100mbit")

    def test_root_without_capabilities_is_told_what_a_container_needs(self):
        status = "Name:\tpython\nCapEff:\t00000000a80425fb\n"
        with (
            absltest.mock.patch.object(network_namespaces, "_tool", return_value="true"),
            absltest.mock.patch.object(os, "geteuid", return_value=0),
            absltest.mock.patch.object(pathlib.Path, "read_text", lambda *_, **__: status),
        ):
            self.assertRegex(network_namespaces.why_unavailable(), "container .*SYS_ADMIN")


@_needs_namespaces
class BandwidthTest(_LaunchTest):
    def test_a_transfer_is_as_slow_as_the_link(self):
        size = 5_000_000
        code, lines = self.run_program(
            f"""
            host, port = config["cluster"]["worker"][0].split(":")
            if index == 0:
                with socket.create_server((host, int(port))) as server:
                    connection, _ = server.accept()
                    start = time.monotonic()
                    left = {size}
                    while left:
                        left -= len(connection.recv(1 << 20))
                    print(time.monotonic() - start)
            else:
                deadline = time.monotonic() + 30
                while True:
                    try:
                        connection = socket.create_connection((host, int(port)))
                        break
                    except OSError:
                        assert time.monotonic() < deadline
                        time.sleep(0.1)
                connection.sendall(bytes({size}))
            """,
            bandwidth="20mbit",
        )
        self.assertEqual(code, 0)
        megabits_per_second = size * 8e-6 / float(*self.texts(lines, "worker 0"))
        self.assertBetween(megabits_per_second, 5, 30)

    def test_links_change_while_processes_run(self):
        code, lines = self.run_program(
            """
            host, port = config["cluster"]["worker"][0].split(":")
            def receive(connection):
                while connection.recv(1):
                    connection.sendall(b"x")
            if index == 0:
                with socket.create_server((host, int(port))) as server:
                    receive(server.accept()[0])
            else:
                deadline = time.monotonic() + 30
                while True:
                    try:
                        connection = socket.create_connection((host, int(port)))
                        break
                    except OSError:
                        assert time.monotonic() < deadline
                        time.sleep(0.1)
                def round_trip():
                    begin = time.monotonic()
                    connection.sendall(b"x")
                    connection.recv(1)
                    return time.monotonic() - begin
                print(min(round_trip() for _ in range(20)))
                wait_until(lambda: min(round_trip(), round_trip(), round_trip()) > 0.15)
                print(min(round_trip() for _ in range(20)))
            """,
            bandwidth="100mbit",
            latency="5ms",
            link_changes=[
                launch.LinkChange(4.0, latency="80ms"),
                launch.LinkChange(0.0, latency="20ms", process="worker 1"),
            ],
        )
        self.assertEqual(code, 0)
        before, after = map(float, self.texts(lines, "worker 1"))
        self.assertBetween(before, 0.025, 0.035)
        self.assertBetween(after, 0.16, 0.17)
        self.assertEqual(self.texts(lines, "tf_gc-launch"), ["4 s: all links: latency 80ms"])

    def test_a_caller_can_change_links_when_it_likes(self):
        networks = []

        def on_line(line):
            networks[0].change(latency="50ms")

        code, _ = self.run_program(
            """
            print("change")
            # Nobody listens, but the refusal takes a round trip.
            def seconds():
                host, port = config["cluster"]["worker"][1 - index].split(":")
                begin = time.monotonic()
                try:
                    socket.create_connection((host, int(port)))
                except ConnectionRefusedError:
                    return time.monotonic() - begin
            wait_until(lambda: seconds() >= 0.1)
            pathlib.Path(sys.argv[0] + str(index)).touch()
            wait_until(lambda: os.path.exists(sys.argv[0] + str(1 - index)))
            """,
            bandwidth="100mbit",
            on_line=on_line,
            on_network=networks.append,
        )
        self.assertEqual(code, 0)
        self.assertLen(networks, 1)

    def test_a_process_reaches_itself_but_not_the_host(self):
        with socket.create_server(("0.0.0.0", 0)) as host:
            _, lines = self.run_program(
                f"""
                with socket.create_server(("127.0.0.1", 0)) as server:
                    socket.create_connection(server.getsockname()).close()
                try:
                    socket.create_connection(("127.0.0.1", {host.getsockname()[1]}))
                except ConnectionRefusedError:
                    print("refused")
                """,
                workers=1,
                bandwidth="1gbit",
            )
        self.assertEqual(self.texts(lines, "worker 0"), ["refused"])

    @parameterized.parameters("pass", "sys.exit(3)")
    def test_no_namespace_is_left_at_the_end(self, body):
        self.run_program(body, bandwidth="100mbit")
        self.assertEmpty(_namespaces_of(os.getpid()))

    def test_no_namespace_is_left_when_set_up_fails(self):
        with (
            absltest.mock.patch.object(
                network_namespaces.NetworkNamespaces, "_limit", side_effect=KeyboardInterrupt
            ),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.run_program("pass", bandwidth="100mbit")
        self.assertEmpty(_namespaces_of(os.getpid()))

    @parameterized.parameters(signal.SIGINT, signal.SIGTERM)
    def test_no_namespace_is_left_after_a_signal(self, number):
        with self.background(_SLEEP, "--bandwidth=100mbit") as (process, pids):
            self.assertLen(_namespaces_of(process.pid), 3)
            process.send_signal(number)
            process.communicate(timeout=_LONG_SECONDS)
        self.assertEqual(process.returncode, 128 + number)
        self.assertFalse(any(map(_is_alive, pids)))
        self.assertEmpty(_namespaces_of(process.pid))

    def test_nothing_holds_packets_back_when_the_launcher_was_killed(self):
        with self.background(_SLEEP, "--latency=5ms") as (process, _):
            (relay,) = _children_of(process.pid, "delay_relay.py")
            process.kill()
            process.wait()
            _wait_until(lambda: not _is_alive(relay))

    def test_the_next_launch_removes_what_a_killed_one_left(self):
        with self.background(_SLEEP, "--bandwidth=100mbit") as (process, pids):
            process.kill()
            process.wait()
            _wait_until(lambda: not any(map(_is_alive, pids)))
        self.assertNotEmpty(_namespaces_of(process.pid))
        self.run_program("pass", bandwidth="100mbit")
        self.assertEmpty(_namespaces_of(process.pid))

    def test_two_launches_do_not_meet(self):
        with self.background(_SLEEP, "--bandwidth=100mbit") as (process, _):
            code, _ = self.run_program("pass", bandwidth="100mbit")
            self.assertEqual(code, 0)
            self.assertLen(_namespaces_of(process.pid), 3)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=_LONG_SECONDS)


if __name__ == "__main__":
    absltest.main()
