"""A stand-in for the machine under tinygrad: PCI devices over vfio-user, physical memory, GPUs.

tinygrad's driver of the NIC is not touched. It gets its PCI device from `System.list_devices`, as
on a real machine, and its GPUs are these here: host memory, and a thread that executes the writes
and polls that tinygrad puts into a GPU's queue.
"""

import ctypes
import mmap
import os
import queue
import struct
import threading
import time

from tinygrad.runtime.support.hcq import (
    HCQAllocator, HCQBuffer, HCQCompiled, HCQSignal, HWQueue, MMIOInterface)
from tinygrad.runtime.support.memory import AddrSpace, VirtMapping
from tinygrad.runtime.support.system import PCIAllocationMeta

from vfio_user import CONFIG, Client

PAGE = 0x1000
RAM, VRAM, BARS = 1 << 32, 1 << 40, 1 << 45
BAR0 = 0
COMMAND, MEMORY_SPACE = 4, 2
WAIT = 20


class Registers:
    """A BAR, or a page of one, as elements of a format."""

    def __init__(self, client, offset, size, fmt):
        self.client, self.offset, self.size, self.fmt = client, offset, size, "<" + fmt
        self.step = struct.calcsize(self.fmt)

    def __len__(self):
        return self.size // self.step

    def __getitem__(self, index):
        data = self.client.read(BAR0, self.offset + index * self.step, self.step)
        return struct.unpack(self.fmt, data)[0]

    def __setitem__(self, index, value):
        data = struct.pack(self.fmt, value)
        self.client.write(BAR0, self.offset + index * self.step, data)


class Machine:
    """What is at which physical address: memory and registers."""

    def __init__(self, sockets):
        self.next = RAM
        # Base, size, and how to reach it: a mapped file, or the client of a device.
        self.ranges = []
        self.clients = [Client(path) for path in sockets]

    def list_devices(self, vendor, devices, base_class=None):
        """As tinygrad's `System.list_devices`: constructors and names of the devices wanted."""
        found = []
        for index, client in enumerate(self.clients):
            ids = struct.unpack("<HH", client.read(CONFIG, 0, 4))
            if ids[0] == vendor and any(ids[1] & mask in wanted for mask, wanted in devices):
                found.append((lambda _prefix, bus, index=index: PciDevice(self, index, bus),
                              f"0000:{index + 1:02x}:00.0"))
        return found

    def share(self, base, size, client, scattered):
        """New memory at `base` that a device reaches; returns its view and its page addresses."""
        fd = os.memfd_create("memory")
        os.ftruncate(fd, size)
        memory = mmap.mmap(fd, size)
        offsets = range(0, size, PAGE)
        # Physical pages of real memory rarely follow one another. Backwards is the worst order.
        order = list(reversed(offsets)) if scattered else list(offsets)
        if scattered:
            for place, offset in zip(offsets, order):
                client.map(base + place, PAGE, fd, offset)
                self.ranges.append((base + place, PAGE, memory, offset))
        else:
            client.map(base, size, fd, 0)
            self.ranges.append((base, size, memory, 0))
        os.close(fd)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return MMIOInterface(address, size), [base + offset for offset in order]

    def find(self, address):
        for base, size, thing, offset in self.ranges:
            if base <= address < base + size:
                return thing, offset + address - base
        raise RuntimeError(f"nothing is at physical address {address:#x}")

    def load(self, address, size):
        thing, at = self.find(address)
        return thing.read(BAR0, at, size) if isinstance(thing, Client) else thing[at:at + size]

    def store(self, address, data):
        thing, at = self.find(address)
        if isinstance(thing, Client):
            thing.write(BAR0, at, data)
        else:
            thing[at:at + len(data)] = data


class PciDevice:
    """What tinygrad's driver calls of its `PCIDevice`."""

    def __init__(self, machine, index, bus):
        self.machine, self.index, self.pcibus = machine, index, bus
        self.client = machine.clients[index]
        self.bar = (BARS + (index << 40), self.client.region_size(BAR0))
        self.peer_group = f"host-{index}"
        machine.ranges.append((*self.bar, self.client, 0))
        # Linux enables memory space when `enable` of the device is written.
        self.write_config(COMMAND, self.read_config(COMMAND, 2) | MEMORY_SPACE, 2)

    def bar_info(self, _bar):
        return self.bar

    def map_bar(self, _bar, off=0, addr=0, size=None, fmt="B"):
        return Registers(self.client, off, size or self.bar[1] - off, fmt)

    def alloc_sysmem(self, size, vaddr=0, contiguous=False):
        size = -(-size // PAGE) * PAGE
        base = self.machine.next
        self.machine.next += size + PAGE
        return self.machine.share(base, size, self.client, scattered=size <= 512 * PAGE)

    def read_config(self, offset, size):
        return int.from_bytes(self.client.read(CONFIG, offset, size), "little")

    def write_config(self, offset, value, size):
        self.client.write(CONFIG, offset, value.to_bytes(size, "little"))


class GpuIface:
    """Where a GPU's memory is: `bar_info` is all that the driver of a NIC asks of it."""

    vram_bar = 0

    def __init__(self, index):
        self.pci_dev, self.index, self.peer_group = self, index, f"host-{index}"
        self.base, self.used = VRAM * (index + 1), 0

    def bar_info(self, _bar):
        return (self.base, VRAM)


class GpuAllocator(HCQAllocator):
    """Memory of a GPU, which its host's NIC reaches; `scattered` chooses 4 KiB pages."""

    scattered = True

    def _alloc(self, size, options):
        iface = self.dev.iface
        align = PAGE if self.scattered else 2 << 20
        size = -(-size // align) * align
        at = -(-iface.used // align) * align
        iface.used = at + size
        machine = self.dev.machine
        client = machine.clients[iface.index]
        view, pages = machine.share(iface.base + at, size, client, self.scattered)
        parts = [(page - iface.base, PAGE) for page in pages] if self.scattered else [(at, size)]
        mapping = VirtMapping(view.addr, size, parts, AddrSpace.PHYS)
        meta = PCIAllocationMeta(mapping, has_cpu_mapping=True)
        return HCQBuffer(view.addr, size, meta=meta, view=view, owner=self.dev)

    def _do_map(self, buf):
        return None


class GpuQueue(HWQueue):
    """Commands of a GPU, executed by its thread one after the other."""

    def wait(self, signal, value):
        self.q(lambda _: signal.wait(value))
        return self

    def signal(self, signal, value):
        self.q(lambda _: setattr(signal, "value", value))
        return self

    def memory_barrier(self):
        return self

    def write(self, b, val, b64=False):
        data = struct.pack("<Q" if b64 else "<I", val)
        self.q(lambda machine: machine.store(physical(b), data))
        return self

    def poll_bit(self, b, val, mask):
        def poll(machine):
            end = time.monotonic() + WAIT
            while int.from_bytes(machine.load(physical(b), 4), "little") & mask != val:
                if time.monotonic() > end:
                    raise RuntimeError(f"no completion within {WAIT} s")
                time.sleep(0.0002)

        self.q(poll)
        return self

    def _submit(self, dev):
        dev.work.put(list(self._q))


class Gpu(HCQCompiled):
    def __init__(self, machine, index):
        self.machine, self.iface = machine, GpuIface(index)
        self.work, self.error = queue.Queue(), None
        threading.Thread(target=self._run, daemon=True).start()
        super().__init__(f"GPU:{index}", GpuAllocator(self, batch_cnt=0), [], None,
                         signal_t=HCQSignal, comp_queue_t=GpuQueue, kernargs_size=PAGE)

    def _run(self):
        while True:
            commands = self.work.get()
            try:
                for command in commands:
                    command(self.machine)
            except Exception as error:  # The main thread reports it.
                self.error = error

    def synchronize(self, timeout=None):
        """Like the original, but ends at once where the thread has failed."""
        while self.error is None and self.timeline_signal.value < self.timeline_value - 1:
            time.sleep(0.0002)
        if self.error is not None:
            raise self.error


def physical(buf):
    """Physical address of a part of a buffer of a NIC."""
    base = buf.base
    offset = buf.va_addr - base.va_addr
    return base.meta.mapping.paddrs[offset // PAGE][0] + offset % PAGE
