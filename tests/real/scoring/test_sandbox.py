"""What a sandbox computes, and that nothing gets out of it or stays in it."""

import json
import os
import platform
import subprocess
import sys
import tarfile
import textwrap
from typing import Any

import pytest

from dartsim.real.scoring import FileInput, ScoreFault
from dartsim.real.scoring.container import supervisor_command
from dartsim.real.scoring.sandbox import CODE

pytestmark = pytest.mark.docker

# ---- what it computes


def test_files_and_options_go_in_and_a_number_comes_out(sandbox):
    result, expected = sandbox.file("sub/a b.txt", "Hello"), sandbox.file("gold.txt", "hello")
    assert sandbox.metric("same_text", result, expected) == 0.0
    assert sandbox.metric("same_text", result, expected, ignore_case=True) == 1.0


@pytest.mark.parametrize("name", ["new\nline.txt", "‮gpj.exe", "a'b\"c.txt", "x" * 200, ".hidden"])
def test_a_file_may_have_any_name_inside_the_folder(sandbox, name):
    assert sandbox.metric("same_text", sandbox.file(name, "1"), sandbox.file("gold.txt", "1")) == 1.0


def test_values_arrive_as_they_are(sandbox):
    assert sandbox.metric("length", "x" * 3_000_000) == 3_000_000.0
    assert sandbox.metric("length", {"$file": "/etc/passwd"}) == 1.0
    assert sandbox.metric("length", [{"$tuple": [1]}, None, 1.5, {"a": {"b": []}}]) == 4.0


@pytest.mark.parametrize(("shape", "kind"), [("tuple", "tuple"), ("set", "set"), ("list", "list"), ("text", "str")])
def test_a_getters_value_keeps_its_type_on_the_way_to_a_metric(sandbox, shape, kind):
    value = sandbox.run(lambda each: each.getter("shape", {"shape": shape}, {}, ""))
    assert value.some_missing == (shape == "list")
    assert sandbox.metric("kind_of", value, kind) == 1.0


def test_a_getter_that_finds_nothing_says_so(sandbox):
    assert sandbox.run(lambda each: each.getter("shape", {"shape": "none"}, {}, "")).missing


def test_a_metric_that_raises_is_a_fault_with_its_message(sandbox):
    fault = fails(sandbox, "raise KeyError('where')")
    assert (fault.cause, fault.may_pass) == ("metric_failed", False)
    assert "where" in str(fault)


def test_an_unknown_metric_and_an_unknown_getter_are_unavailable(sandbox):
    with pytest.raises(ScoreFault) as caught:
        sandbox.metric("nonsense")
    assert caught.value.cause == "metric_unavailable"
    with pytest.raises(ScoreFault) as caught:
        sandbox.run(lambda each: each.getter("nonsense", {}, {}, ""))
    assert caught.value.cause == "getter_unavailable"


def test_a_list_that_the_desktop_wrote_is_read_not_run(sandbox):
    assert sandbox.metric("check_gnome_favorite_apps", "['a', 'b']", {"expected": ["a", "b"]}) == 1.0
    with pytest.raises(ScoreFault):
        sandbox.metric("check_gnome_favorite_apps", "[].__class__.__base__", {"expected": object.__name__})


# ---- that nothing gets out


def test_code_inside_is_nobody_and_has_no_network(sandbox):
    found = told(
        sandbox,
        """
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
        import socket
        def refused(call):
            try:
                call()
            except OSError as error:
                return error.errno
        tell(uid=os.getuid(), capabilities=[int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")],
             no_new_privileges=status["NoNewPrivs"], first=os.path.exists("/proc/1"),
             network=refused(lambda: socket.create_connection(("192.0.2.1", 80), 1)),
             interfaces=[name for _, name in socket.if_nameindex()])
        """,
    )
    assert found["uid"] != 0
    assert found["capabilities"] == [0, 0, 0]
    assert (found["no_new_privileges"], found["first"], found["interfaces"]) == ("1", True, ["lo"])
    assert found["network"] is not None


def test_nothing_can_be_written_but_the_scratch_folder(sandbox):
    found = told(
        sandbox,
        """
        written = []
        for root, folders, files in os.walk("/"):
            if root.count("/") > 2:
                folders.clear()
            folders[:] = [name for name in folders if os.path.join(root, name) not in ("/proc", "/sys", "/scratch")]
            for path in (os.path.join(root, "by-the-agent"), *(os.path.join(root, name) for name in files[:3])):
                if path.startswith("/dev/") and not path.endswith("by-the-agent"):
                    continue
                try:
                    open(path, "ab").close()
                    written.append(path)
                except OSError:
                    pass
        tell(written=written)
        """,
    )
    assert found["written"] == []


def test_no_setting_or_device_of_the_machine_can_be_changed(sandbox):
    """Root's user namespaces would let user 0 write ``core_pattern``, which names a program that the kernel runs."""
    found = told(
        sandbox,
        """
        changed = []
        for root, _, files in os.walk("/proc/sys"):
            changed += [path for path in (os.path.join(root, name) for name in files) if os.access(path, os.W_OK)]
        for path in ("/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/sys/kernel/core_pattern"):
            try:
                open(path, "r+").close()
                changed.append(path)
            except OSError:
                pass
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            try:
                os.chmod("/dev/" + name, 0o666)
                changed.append(name)
            except OSError:
                pass
        tell(changed=changed)
        """,
    )
    assert found["changed"] == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls are by their numbers on x86-64")
def test_system_calls_that_no_metric_needs_are_refused(sandbox):
    """Arguments are such that the kernel would give another error, or none, to one that it lets through."""
    numbers = {"add_key": 248, "bpf": 321, "kexec_load": 246, "keyctl": 250, "mount": 165, "perf_event_open": 298}
    numbers |= {"setns": 308, "unshare": 272, "userfaultfd": 323}
    found = told(
        sandbox,
        f"""
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        def error(number, *arguments):
            ctypes.set_errno(0)
            result = libc.syscall(number, *arguments)
            return errno.errorcode.get(ctypes.get_errno()) if result == -1 else result
        named = {{name: error(number, 0, 0, 0, 0, 0) for name, number in {numbers!r}.items()}}
        user = error(56, 0x10000000 | 17, 0, 0, 0, 0)
        if user == 0:
            os._exit(0)
        tell(named=named, user=user)
        """,
    )
    assert found["named"] == dict.fromkeys(numbers, "EPERM")
    assert found["user"] == "EPERM", "clone with a user namespace"


def test_a_supervisor_does_not_run_outside_a_container(tmp_path):
    """There it would end every process that it may."""
    command = supervisor_command([sys.executable, "-I", "-S"], str(CODE.parent), str(tmp_path), str(tmp_path), "own")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "process 1 of a container" in done.stderr


def test_no_file_of_an_agent_is_imported_in_place_of_a_module(sandbox):
    found = told(sandbox, "import sys\ntell(path=[path for path in sys.path if not path or os.access(path, os.W_OK)])")
    assert found["path"] == []


def test_a_program_inside_cannot_reach_the_score(sandbox):
    """It looks for the report of its own metric and for the connection of process 1, and signals both."""
    code = """
    import subprocess, sys
    attack = '''
    import ctypes, os, signal, struct
    forged = b"S" + struct.pack("<d", 1.0)
    for pid in ("1", str(os.getppid())):
        for number in range(64):
            for opened in (f"/proc/{pid}/fd/{number}", f"/proc/self/fd/{number}"):
                try:
                    os.write(os.open(opened, os.O_WRONLY), forged)
                except OSError:
                    pass
        try:
            open(f"/proc/{pid}/mem", "r+b")
            print("memory of", pid)
        except OSError:
            pass
        if ctypes.CDLL(None).ptrace(16, int(pid), 0, 0) == 0:
            print("ptrace of", pid)
    for number in range(3, 256):
        try:
            os.write(number, forged)
        except OSError:
            pass
    for number in set(signal.Signals) - {signal.SIGCONT}:
        os.kill(1, number)
    '''
    import textwrap
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(attack)], capture_output=True)
    if b" of " in done.stdout or done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    score = 0.25
    """
    assert sandbox.code(textwrap.dedent(code)) == 0.25


def test_the_sockets_of_the_driver_are_gone_before_a_call(sandbox):
    assert told(sandbox, "tell(names=os.listdir('/driver') if os.path.exists('/driver') else None)")["names"] == []


def test_a_file_of_the_agent_cannot_take_the_place_of_the_expected_one(sandbox):
    """A getter of presentations unpacks a member by the name that the agent gave it."""
    result = sandbox.run(lambda each: each.getter("file", {"dest": "gold.txt"}, {}, ""))
    assert sandbox.metric("same_text", result, sandbox.file("gold.txt", "expected")) == 0.0


def test_no_argument_can_name_the_files_of_another(sandbox):
    code = (
        "import os\nfound = {root for root, _, names in os.walk('/scratch/files') if names}\nscore = len(found - OLD)"
    )
    gold = sandbox.file("gold.txt", "expected")
    seen: set[str] = set()
    for _ in range(2):
        answer = sandbox.file("answer.py", f"OLD = {seen or 'set()'}\n{code}")
        assert sandbox.metric("run_code", answer, gold=gold) == 2.0
        seen.update(
            told(sandbox, "tell(roots=[root for root, _, names in os.walk('/scratch/files') if names])")["roots"]
        )
    assert len(seen) == 2


def test_what_a_metric_expects_beside_a_file_is_there(sandbox):
    sheet, answer = sandbox.file("book-0.csv", "1,2"), sandbox.file("answer.py", "score = float(len(FILES))")
    code = "import os\nFILES = os.listdir(os.path.dirname(options['book']))\n"
    book = FileInput(sandbox.file("book.xlsx", "").path, "book.xlsx", (sheet,))
    answer.path.write_text(code + answer.path.read_text())
    assert sandbox.metric("run_code", answer, book=book) == 2.0


def test_options_may_be_long(sandbox):
    assert sandbox.code("score = len(options['long'])", long="x" * 100_000) == 100_000.0


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python has no filter for archives")
def test_an_archive_with_names_or_links_that_lead_out_is_not_unpacked(sandbox):
    code = """
    import io, os, shutil, tarfile
    refused = 0
    for number, (name, link) in enumerate([("../x", None), ("/scratch/x", None), ("x", "/etc/passwd"), ("x", "../y")]):
        with tarfile.open(f"{number}.tar", "w") as archive:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = (tarfile.SYMTYPE, link) if link else (tarfile.REGTYPE, "")
            archive.addfile(info)
        try:
            shutil.unpack_archive(f"{number}.tar", f"folder{number}")
        except tarfile.FilterError:
            refused += 1
    score = refused
    """
    assert sandbox.code(textwrap.dedent(code)) == 3.0  # "/" is taken off a name
    assert told(sandbox, "tell(there=os.path.lexists('/scratch/x'))")["there"] is False


def test_a_report_of_another_kind_of_call_is_none(sandbox):
    code = """
    import os
    for number in range(3, 256):
        try:
            os.write(number, b"V" + bytes(2) + b"{}")
        except OSError:
            pass
    os._exit(0)
    """
    assert fails(sandbox, textwrap.dedent(code)).cause == "score_reply"


def test_a_getters_file_with_an_impossible_name_is_a_fault(sandbox):
    for dest in ("/".join(["d" * 200] * 8), "a\udcff"):
        with pytest.raises(ScoreFault) as caught:
            sandbox.run(lambda each, dest=dest: each.getter("file", {"dest": dest}, {}, ""))
        assert caught.value.cause in ("score_reply", "getter_failed")
    assert sandbox.code("score = 0.75") == 0.75


def test_an_argument_with_too_many_levels_is_refused_before_it_is_sent(sandbox):
    value: Any = []
    for _ in range(950):
        value = [value]
    with pytest.raises(ScoreFault) as caught:
        sandbox.metric("length", value)
    assert caught.value.cause == "input_too_deep"


# ---- that nothing stays


def test_a_daemon_does_not_outlive_its_score(sandbox):
    code = """
    import time
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                import signal
                for number in range(1, 32):
                    try:
                        signal.signal(number, signal.SIG_IGN)
                    except (OSError, ValueError):
                        pass
                while True:
                    time.sleep(1)
            os._exit(0)
    score = 0.5
    """
    assert sandbox.code("import os\n" + textwrap.dedent(code)) == 0.5
    assert told(sandbox, "tell(pids=len([p for p in os.listdir('/proc') if p.isdigit()]))")["pids"] == 2


def test_whatever_is_left_in_the_scratch_folder_is_removed(sandbox):
    code = """
    os.chdir(os.environ["TMPDIR"])
    open("file", "w").write("secret")
    os.symlink("/etc/passwd", "link")
    os.mkfifo("pipe")
    here = os.getcwd()
    for _ in range(600):
        os.mkdir("d" * 50)
        os.chdir("d" * 50)
    os.chdir(here)
    os.mkdir("closed")
    os.mkdir("closed/inner")
    os.chmod("closed/inner", 0)
    os.chmod("closed", 0)
    score = 0.5
    """
    assert sandbox.code("import os\n" + textwrap.dedent(code)) == 0.5
    listing = "tell(names=[sorted(os.listdir('/scratch')), os.listdir(os.environ['TMPDIR'])], files=FILES)"
    assert told(sandbox, listing) == {"names": [["blobs", "files", "tmp"], []], "files": ["answer.py"]}


@pytest.mark.parametrize(
    "code",
    [
        "import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (64, 64))",
        "os.sched_setaffinity(1, {0})",
        "os.setpriority(os.PRIO_PROCESS, 1, 19)",
        "import shutil; [shutil.rmtree(f'/scratch/{name}') for name in os.listdir('/scratch')]; "
        "os.chmod('/scratch', 0o500)",
        "os.setxattr('/scratch', 'user.note', b'for the next answer')",
    ],
    ids=["limits", "affinity", "priority", "closed folder", "note on the folder"],
)
def test_a_sandbox_that_was_changed_is_replaced(sandbox, code):
    assert sandbox.code("score = 0.25") == 0.25  # so that one has started
    started = sandbox.pool.started
    changed = sandbox.code(f"import os\ntry:\n    {code}\n    score = 0.5\nexcept OSError:\n    score = 0.25")
    if changed == 0.25 or (code.startswith("os.sched") and os.cpu_count() == 1):
        return  # the kernel refused it
    assert sandbox.code("score = 0.75") == 0.75
    assert sandbox.pool.started == started + 1


# ---- limits


@pytest.mark.parametrize(
    ("code", "causes"),
    {
        "loop": ("while True: pass", {"score_cpu", "score_timeout"}),
        "sleep": ("import time; time.sleep(100)", {"score_timeout"}),
        "allocation": ("bytearray(2**40)", {"score_memory"}),
        "many allocations": (
            "held = [bytearray(2**24) for _ in range(2**20)]",
            {"score_memory", "score_killed", "score_timeout"},
        ),
        "large file": ("file = open('big', 'wb')\nwhile True: file.write(bytes(2**20))", {"score_disk"}),
        "many files": (
            "for n in range(10**6): open(f'{n}', 'w').close()",
            {"score_disk", "score_cpu", "score_timeout"},
        ),
        "segmentation fault": ("import ctypes; ctypes.string_at(0)", {"score_crashed"}),
        "exit": ("import os; os._exit(0)", {"score_reply"}),
        "suicide": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {"score_killed"}),
        "recursion": (
            "import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
            {"score_crashed", "score_memory", "score_cpu", "score_timeout", "metric_failed"},
        ),
        "long message": ("raise RuntimeError('x' * 10**7)", {"metric_failed"}),
        "no number": ("score = 'much'", {"metric_failed"}),
    }.values(),
)
def test_a_call_ends_at_its_limit_and_the_next_one_is_scored(sandbox, code, causes):
    fault = fails(sandbox, code)
    assert fault.cause in causes
    assert len(str(fault)) < 4_000
    assert sandbox.code("score = 0.75") == 0.75


def test_a_fork_bomb_ends_with_its_score(sandbox):
    code = """
    import os
    while True:
        try:
            os.fork()
        except OSError:
            pass
    """
    fails(sandbox, textwrap.dedent(code))
    assert told(sandbox, "tell(pids=len([p for p in os.listdir('/proc') if p.isdigit()]))")["pids"] == 2


def test_many_files_are_refused_before_they_are_sent(sandbox, tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ScoreFault) as caught:
        sandbox.metric("same_text", FileInput(path, "a"), FileInput(path, "b"))
    assert caught.value.cause == "input_too_large"


def test_a_file_that_fills_the_scratch_folder_is_a_fault(sandbox):
    with pytest.raises(ScoreFault) as caught:
        sandbox.metric("length", sandbox.file("large", bytes(40 * 2**20)))
    assert caught.value.cause in ("score_disk", "sandbox_died")
    assert sandbox.code("score = 0.75") == 0.75


def test_nothing_is_left_of_a_closed_pool(open_pool, evaluator_home, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_pool(evaluator_home, tmp_path) as pool:
        pool.code("score = 0.5")
        assert list(tmp_path.glob("dartsim-scorer-*"))
    assert not list(tmp_path.glob("dartsim-scorer-*"))


# ---- helpers


def fails(sandbox, code: str) -> ScoreFault:
    with pytest.raises(ScoreFault) as caught:
        sandbox.code(code)
    return caught.value


def told(sandbox, code: str):
    """Return what code inside tells, as the message of an error."""
    start = "import json, os\ndef tell(**found):\n    raise RuntimeError('TOLD' + json.dumps(found))\n"
    start += "FILES = [name for _, _, names in os.walk('.') for name in names]\n"
    return json.loads(str(fails(sandbox, start + textwrap.dedent(code))).partition("TOLD")[2])
