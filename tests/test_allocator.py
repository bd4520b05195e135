"""A step that asks for the memory of the step before pays for no new pages."""

import platform
import resource
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from glassformer.allocator import keep_freed_memory
{setting}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.empty(48 << 20, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def faults(setting: str) -> int:
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(setting=setting)], capture_output=True, text=True, check=True
    )
    return int(out.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_freed_blocks_are_used_again() -> None:
    pages = 10 * (48 << 20) // resource.getpagesize()  # larger than what glibc keeps by itself, 32 MiB at most
    assert faults("keep_freed_memory()") < pages / 100
    assert faults("") > pages / 2
