"""Objects in huge pages are as they were, and their memory goes back to the system."""

import subprocess
import sys

SCRIPT = """
from huge_pages import use_huge_pages

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

made_before = [str(number) for number in range(200_000)]
enabled = use_huge_pages()
assert use_huge_pages() == enabled
start = resident()
for repeat in range(3):
    made_after = [(number, str(number)) for number in range(500_000)]
    assert all(text == str(number) for number, text in made_after)
    filled = resident() - start
    del made_after
    left = resident() - start
    assert filled > 30e6 and left < filled / 2, (filled, left)
assert made_before == [str(number) for number in range(200_000)]
del made_before
print(enabled)
"""


def test_memory_is_taken_given_back_and_taken_again(compiled_source):
    folder = compiled_source("huge_pages").parent
    command = [sys.executable, "-c", SCRIPT]
    shown = subprocess.run(command, cwd=folder, env={"PYTHONPATH": "."}, capture_output=True, text=True, check=False)
    assert (shown.stderr, shown.stdout.strip()) == ("", str(sys.platform == "linux"))
