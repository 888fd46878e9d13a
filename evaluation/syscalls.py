"""A filter of system calls for bubblewrap: no further processes, namespaces or hidden memory.

`RLIMIT_NPROC` does not bind root, and evaluations often run as root in a container. This filter is
classic BPF: it takes the number of a call and gives what the kernel is to do with it.
"""

import errno
import os
import struct

CLONE_THREAD = 0x10000
ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
AT_CALL, AT_MACHINE, AT_FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the kernel's `seccomp_data`."""
OTHER_ABI = 0x40000000
"""x86-64 numbers from here on are 32-bit calls under other numbers."""

MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "fork": 57, "vfork": 58, "clone": 56, "clone3": 435,
            "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155,
            "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
            "memfd_create": 319, "shmget": 29, "add_key": 248, "request_key": 249, "keyctl": 250,
            "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "clone": 220, "clone3": 435,
            "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41,
            "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
            "memfd_create": 279, "shmget": 194, "add_key": 217, "request_key": 218, "keyctl": 219,
            "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "io_uring_setup": 425,
        },
    ),
}  # fmt: skip


def make_filter(machine: str | None = None) -> bytes | None:
    """The filter for a kind of machine, this one when none; none where calls are not known."""
    known = MACHINES.get(machine or os.uname().machine)
    if known is None:
        return None
    code, calls = known
    denied = [number for name, number in calls.items() if name not in ("clone", "clone3")]
    program = [
        _step(LOAD, AT_MACHINE),
        _step(IF_EQUAL, code, skip_if_true=1),
        _step(RETURN, KILL),
        _step(LOAD, AT_CALL),
        _step(IF_AT_LEAST, OTHER_ABI, skip_if_false=1),
        _step(RETURN, KILL),
    ]
    for number in denied:
        program += [_step(IF_EQUAL, number, skip_if_false=1), _step(RETURN, ERROR | errno.EPERM)]
    program += [
        # Its flags lie in memory, out of a filter's sight; without it the C library uses clone.
        _step(IF_EQUAL, calls["clone3"], skip_if_false=1),
        _step(RETURN, ERROR | errno.ENOSYS),
        _step(IF_EQUAL, calls["clone"], skip_if_false=3),
        _step(LOAD, AT_FIRST_ARGUMENT),
        _step(IF_ANY_BIT, CLONE_THREAD, skip_if_true=1),
        _step(RETURN, ERROR | errno.EPERM),
        _step(RETURN, ALLOW),
    ]
    return b"".join(program)


def _step(code: int, value: int, *, skip_if_true: int = 0, skip_if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if_true, skip_if_false, value)
