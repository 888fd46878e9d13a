"""A seccomp filter for bubblewrap: no new processes or namespaces, no unaccounted memory.

`RLIMIT_NPROC` does not apply to root, and evaluations often run as root in a container. `RLIMIT_AS`
does not count what the kernel holds for a program: messages, locks, watches, attributes, the queue
of a listening socket, pages spliced into a pipe. The filter is classic BPF: it maps the number of a
system call and its arguments to the kernel's action.

The filter is a deny list, because the calls that Python and a C library need differ by version and
machine, and a call missing from an allow list would fail correct programs. A deny list ages as
kernels gain calls. So among the calls from `FIRST_NEW` on, which have the same number on all
machines, only those named are allowed. The others answer as on an older kernel, which C libraries
expect.
"""

import errno
import os
import struct

CLONE_THREAD = 0x10000
ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
AT_CALL, AT_MACHINE, AT_FIRST_ARGUMENT, AT_SECOND_ARGUMENT = 0, 4, 16, 24
"""Offsets in the kernel's `seccomp_data`; those of arguments point at the lower half."""
OTHER_ABI = 0x40000000
"""On x86-64, numbers from here on are the same calls in the x32 ABI."""

FIRST_NEW = 424
ALLOWED_NEW = {"close_range": 436, "faccessat2": 439, "epoll_pwait2": 441, "fchmodat2": 452}
"""clone3 is missing because its flags lie in memory that a filter cannot read; the C library then
falls back to clone."""
ALLOWED_FCNTL = {
    "F_DUPFD": 0, "F_GETFD": 1, "F_SETFD": 2, "F_GETFL": 3, "F_SETFL": 4, "F_DUPFD_CLOEXEC": 1030,
}  # fmt: skip
"""Locks, leases, notifications and larger pipes are missing because they take kernel memory."""

# Calls that use an object need no entry if the call that makes it is denied.
MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "clone": 56, "fcntl": 72,
            "fork": 57, "vfork": 58,
            "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155,
            "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
            "name_to_handle_at": 303, "open_by_handle_at": 304,
            "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "memfd_create": 319,
            "flock": 73, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190,
            "inotify_init": 253, "inotify_init1": 294, "fanotify_init": 300, "timer_create": 222,
            "socket": 41, "setsockopt": 54, "splice": 275, "tee": 276, "vmsplice": 278,
            "add_key": 248, "request_key": 249, "keyctl": 250, "io_setup": 206,
            "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "seccomp": 317,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "clone": 220, "fcntl": 25,
            "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41,
            "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
            "name_to_handle_at": 264, "open_by_handle_at": 265,
            "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180, "memfd_create": 279,
            "flock": 32, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7,
            "inotify_init1": 26, "fanotify_init": 262, "timer_create": 107,
            "socket": 198, "setsockopt": 208, "splice": 76, "tee": 77, "vmsplice": 75,
            "add_key": 217, "request_key": 218, "keyctl": 219, "io_setup": 0,
            "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "seccomp": 277,
        },
    ),
}  # fmt: skip
"""Audit code and numbers of system calls, by the machine's name in `uname`.

All calls are denied; `clone` and `fcntl` only for some arguments.
"""


def make_filter(machine: str | None = None) -> bytes | None:
    """The filter for a machine; None if its system calls are not listed. Defaults to this one."""
    known = MACHINES.get(machine or os.uname().machine)
    if known is None:
        return None
    code, calls = known
    program = [
        _step(LOAD, AT_MACHINE),
        _step(IF_EQUAL, code, skip_if_true=1),
        _step(RETURN, KILL),
        _step(LOAD, AT_CALL),
        _step(IF_AT_LEAST, OTHER_ABI, skip_if_false=1),
        _step(RETURN, KILL),
    ]
    for number in ALLOWED_NEW.values():
        program += [_step(IF_EQUAL, number, skip_if_false=1), _step(RETURN, ALLOW)]
    program += [
        _step(IF_AT_LEAST, FIRST_NEW, skip_if_false=1),
        _step(RETURN, ERROR | errno.ENOSYS),
    ]
    for name, number in calls.items():
        if name not in ("clone", "fcntl"):
            program += [
                _step(IF_EQUAL, number, skip_if_false=1),
                _step(RETURN, ERROR | errno.EPERM),
            ]
    program += [
        _step(IF_EQUAL, calls["clone"], skip_if_false=4),
        _step(LOAD, AT_FIRST_ARGUMENT),
        _step(IF_ANY_BIT, CLONE_THREAD, skip_if_true=1),
        _step(RETURN, ERROR | errno.EPERM),
        _step(RETURN, ALLOW),
        _step(IF_EQUAL, calls["fcntl"], skip_if_true=1),
        _step(RETURN, ALLOW),
        _step(LOAD, AT_SECOND_ARGUMENT),
    ]
    for command in ALLOWED_FCNTL.values():
        program += [_step(IF_EQUAL, command, skip_if_false=1), _step(RETURN, ALLOW)]
    return b"".join([*program, _step(RETURN, ERROR | errno.EPERM)])


def _step(code: int, value: int, *, skip_if_true: int = 0, skip_if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if_true, skip_if_false, value)
