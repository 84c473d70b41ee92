#!/usr/bin/python3
"""Carries frames between two network interfaces, in order, and delivers each MS milliseconds after it came.

  slow_wire.py INTERFACE INTERFACE MS

For kernels without netem. The virtio header travels with each frame: the kernel hands over large segments whose checksums
it has not computed yet, and without the header TCP would drop them.
"""
import collections
import select
import socket
import sys
import time

# Of <linux/if_packet.h> and <linux/if_ether.h>; Python's socket module lacks them.
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 15, 23, 0x0003
LONGEST = 70_000  # bytes of a frame with its header
QUEUE = 1 << 24  # bytes in the kernel, of each direction


def attach(interface: str) -> socket.socket:
    """A socket for all frames that *interface* receives."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE)
    end.bind((interface, 0))
    end.setblocking(False)
    return end


def frames_of(end: socket.socket):
    """Frames that have come; a few at a time, so that those that are due do not wait."""
    for _ in range(64):
        try:
            yield end.recv(LONGEST)
        except OSError:  # None is left, or the interface is down.
            return


def main() -> None:
    left, right = attach(sys.argv[1]), attach(sys.argv[2])
    delay_s = float(sys.argv[3]) / 1000
    ways = {left.fileno(): (left, right), right.fileno(): (right, left)}
    waiting = collections.deque()  # of (when it is due, where it goes, frame)
    poll = select.epoll()
    for descriptor in ways:
        poll.register(descriptor, select.EPOLLIN)
    while True:
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, frame = waiting.popleft()
            try:
                end.send(frame)
            except OSError:
                pass  # Full or down: the frame is lost, as on any wire.
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else -1
        for descriptor, _ in poll.poll(pause):
            source, target = ways[descriptor]
            waiting.extend((time.monotonic() + delay_s, target, frame) for frame in frames_of(source))


main()
