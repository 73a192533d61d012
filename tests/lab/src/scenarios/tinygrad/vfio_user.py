"""A client of vfio-user 0.0: one PCI device behind a UNIX socket."""

import array
import json
import socket
import struct
import threading

HEADER = struct.Struct("<HHIII")
VERSION, DMA_MAP, REGION_INFO, REGION_READ, REGION_WRITE = 1, 2, 5, 9, 10
CONFIG = 7
REPLY, ERROR = 1, 1 << 5
READ, WRITE = 1, 2


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.next_id = 0
        self.lock = threading.Lock()
        capabilities = json.dumps({"capabilities": {"max_msg_fds": 1}}).encode() + b"\0"
        self._call(VERSION, struct.pack("<HH", 0, 0) + capabilities)

    def map(self, address, size, fd, offset):
        """Lets the device read and write `size` bytes of a file at `address`."""
        fields = struct.pack("<IIQQQ", 32, READ | WRITE, offset, address, size)
        self._call(DMA_MAP, fields, fd)

    def region_size(self, region):
        reply = self._call(REGION_INFO, struct.pack("<8I", 32, 0, region, *[0] * 5))
        return struct.unpack_from("<Q", reply, 16)[0]

    def read(self, region, offset, size):
        reply = self._call(REGION_READ, struct.pack("<QII", offset, region, size))
        return reply[16:16 + size]

    def write(self, region, offset, data):
        self._call(REGION_WRITE, struct.pack("<QII", offset, region, len(data)) + data)

    def _call(self, command, body, fd=None):
        with self.lock:
            return self._exchange(command, body, fd)

    def _exchange(self, command, body, fd):
        self.next_id = (self.next_id + 1) & 0xffff
        message = HEADER.pack(self.next_id, command, HEADER.size + len(body), 0, 0) + body
        rights = [] if fd is None else [
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        sent = self.socket.sendmsg([message], rights)
        self.socket.sendall(message[sent:])
        number, answered, size, flags, error = HEADER.unpack(self._receive(HEADER.size))
        reply = self._receive(size - HEADER.size)
        if (number, answered, flags & 0xf) != (self.next_id, command, REPLY):
            raise RuntimeError(f"vfio-user: a reply to command {answered} instead of {command}")
        if flags & ERROR:
            raise OSError(error, f"vfio-user: command {command} was refused")
        return reply

    def _receive(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise RuntimeError("vfio-user: the model has hung up")
            data += part
        return data
