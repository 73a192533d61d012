"""tinygrad's ConnectX driver, unmodified, between two devices: sends, writes, reads.

    referee.py SOCKET SOCKET SIZES

SIZES is how many random lengths follow the fixed ones: with 140 the rings of 128 entries wrap.
tinygrad is found by PYTHONPATH. Prints a line for each check and ends with 1 where one fails.
"""

import random
import struct
import sys
import time

from machine import PAGE, WAIT, Gpu, Machine
from tinygrad.helpers import to_be32, to_be64
from tinygrad.runtime.support.mlx.mlxdev import MLXDev, MLXQP
from tinygrad.runtime.support.system import System

RDMA_WRITE, RDMA_READ = 0x08, 0x10
# Of a completion: opcode "requester error", and its syndrome.
REMOTE_ACCESS = (0x0d, 0x13)
GUARD = b"\xa5"
LENGTHS = [1, 7, 64, 1023, 4096, 4097, 65536, 300_001]


def passed(text):
    print(f"ok: {text}", flush=True)


def expect(condition, text):
    if not condition:
        raise SystemExit(f"failed: {text}")


def lengths(rng):
    return LENGTHS + [rng.randrange(1, 20_000) for _ in range(int(sys.argv[3]))]


class Side:
    """A queue pair of tinygrad's, and a buffer of its own: what posts and polls from the CPU.

    tinygrad itself has its GPUs post sends. The work requests of other opcodes are written here
    into the rings that it made.
    """

    def __init__(self, nic, size):
        self.qp, self.head, self.done = MLXQP(nic), 0, 0
        self.memory, self.pages = nic.pci_dev.alloc_sysmem(size)
        self.key = nic.register_mem(self.pages, len(self.pages) * PAGE)
        # tinygrad has the region begin at the address of its first page.
        self.base = self.pages[0]

    def post(self, opcode, at, peer, peer_at, size):
        qp, dev = self.qp, self.qp.dev
        ds = 3
        wqe = struct.pack(">IIII", self.head << 8 | opcode, qp.qp_info["qpn"] << 8 | ds, 8, 0)
        wqe += struct.pack(">QII", peer.base + peer_at, peer.key, 0)
        wqe += struct.pack(">IIQ", size, self.key, self.base + at)
        slot = self.head % (1 << qp.log_sq_size)
        qp.qp_buf.view(qp.sq_offset + slot * 64, 64)[:] = wqe.ljust(64, b"\0")
        self.head += 1
        dev.dbr[qp.qp_dbr // 4 + 1] = to_be32(self.head)
        dev.uar_view[0x800 // 8] = to_be64(int.from_bytes(wqe[:8], "big"))

    def poll(self):
        """Opcode of the next completion, and its error syndrome or 0."""
        cqe = self.qp.cq_mem.view(self.done % self.qp.cq_size * 64, 64)
        owner = self.done // self.qp.cq_size & 1
        end = time.monotonic() + WAIT
        while cqe[63] & 1 != owner or cqe[63] >> 4 == 0xf:
            expect(time.monotonic() < end, f"no completion within {WAIT} s")
        self.done += 1
        self.qp.dev.dbr[self.qp.cq_dbr // 4] = to_be32(self.done & 0xffffff)
        opcode = cqe[63] >> 4
        return opcode, cqe[55] if opcode in (0x0d, 0x0e) else 0


def transfers(gpus, rng):
    """Copies of tinygrad's own between GPUs: a send, and a receive that waits for it."""
    copies = 0
    for scattered, room in (True, 400_000), (False, 4 << 20):
        for gpu in gpus:
            gpu.allocator.scattered = scattered
        for src, dest in (gpus, gpus[::-1]):
            a, b = (gpu.allocator.alloc(room) for gpu in (src, dest))
            for size in lengths(rng):
                data = rng.randbytes(size)
                at, to = rng.randrange(room - size), rng.randrange(room - size)
                a.view[at:at + size] = data
                b.view[to:to + size + 1] = GUARD * (size + 1)
                src.allocator._transfer(b.offset(to), a.offset(at), size, src, dest)
                src.synchronize()
                dest.synchronize()
                expect(bytes(b.view[to:to + size]) == data, f"{size} bytes arrive as others")
                expect(b.view[to + size] == GUARD[0], f"more than {size} bytes arrive")
                copies += 1
            src.allocator._free(a)
            dest.allocator._free(b)
    passed(f"{copies} copies between GPUs by SEND, pages of 4 KiB and 2 MiB, both directions")


def requests(nics, rng):
    """RDMA writes and reads, and one through a key that is gone."""
    room = 400_000
    sides = [Side(nic, room) for nic in nics]
    for one, other in (sides, sides[::-1]):
        one.qp.connect(other.qp)
    posted = 0
    for one, other in (sides, sides[::-1]):
        for opcode in RDMA_WRITE, RDMA_READ:
            source, target = (one, other) if opcode == RDMA_WRITE else (other, one)
            for size in lengths(rng):
                data = rng.randbytes(size)
                at, to = rng.randrange(room - size), rng.randrange(room - size)
                source.memory[at:at + size] = data
                target.memory[to:to + size + 1] = GUARD * (size + 1)
                mine, theirs = (at, to) if opcode == RDMA_WRITE else (to, at)
                one.post(opcode, mine, other, theirs, size)
                completion = one.poll()
                expect(completion == (0, 0), f"opcode {opcode:#x} completes as {completion}")
                expect(bytes(target.memory[to:to + size]) == data, f"{size} bytes differ")
                expect(target.memory[to + size] == GUARD[0], f"more than {size} bytes arrive")
                posted += 1
    passed(f"{posted} writes and reads, both directions")
    one, other = sides
    nics[1].unregister_mem(other.key)
    one.post(RDMA_WRITE, 0, other, 0, 64)
    expect(one.poll() == REMOTE_ACCESS, "a write through a key that is gone completes otherwise")
    passed("a write through a key that is gone ends in a remote access error")


def main():
    machine, rng = Machine(sys.argv[1:3]), random.Random(1)
    System.list_devices = machine.list_devices
    gpus = [Gpu(machine, index) for index in range(2)]
    transfers(gpus, rng)
    nics = [gpu.rdma_dev().iface.mlx_dev for gpu in gpus]
    requests(nics, rng)
    # A process that ends leaves the device as it is: no command of tinygrad's ends anything.
    requests([MLXDev(nics[0].pci_dev, ip="10.0.0.0"), nics[1]], rng)
    passed("a second bring-up without a reset")


main()
