"""Clients that keep their permissions alive: `refresh.py PORT SESSIONS PEERS REQUESTS`.

Makes SESSIONS allocations on a TURN server on this machine that asks for no password. Prints `ready`, and waits for a
line. Then it sends REQUESTS requests CreatePermission (RFC 8656), one session after the other, each for the same PEERS
addresses of its session, and waits for the answers. Each address of a request makes the server set the timer of that
permission anew. Ends with 1 if an answer is missing or is an error. Prints the seconds of the refreshes.
"""

import os
import socket
import struct
import sys
import time

COOKIE = 0x2112A442
ALLOCATE, CREATE_PERMISSION, SUCCESS = 0x0003, 0x0008, 0x0100
REQUESTED_TRANSPORT, XOR_PEER_ADDRESS = 0x0019, 0x0012
UDP = 17
IN_FLIGHT = 32


def request(method, attributes):
    body = b"".join(struct.pack("!HH", kind, len(value)) + value for kind, value in attributes)
    return struct.pack("!HHI", method, len(body), COOKIE) + os.urandom(12) + body


def peer(number):
    address = struct.unpack("!I", socket.inet_aton("10.0.0.0"))[0] + number
    return XOR_PEER_ADDRESS, struct.pack("!BBHI", 0, 1, 3480 ^ (COOKIE >> 16), address ^ COOKIE)


def answer(client, method):
    kind = struct.unpack("!H", client.recv(2048)[:2])[0]
    if kind != method | SUCCESS:
        sys.exit(f"the server answers {kind:#06x}")


def main():
    port, sessions, peers, requests = map(int, sys.argv[1:])
    clients = []
    for _ in range(sessions):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.connect(("127.0.0.1", port))
        client.settimeout(30)
        client.send(request(ALLOCATE, [(REQUESTED_TRANSPORT, struct.pack("!I", UDP << 24))]))
        answer(client, ALLOCATE)
        clients.append(client)
    permissions = request(CREATE_PERMISSION, [peer(number) for number in range(peers)])
    for client in clients:
        client.send(permissions)
        answer(client, CREATE_PERMISSION)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    for number in range(requests + IN_FLIGHT):
        if number >= IN_FLIGHT:
            answer(clients[(number - IN_FLIGHT) % sessions], CREATE_PERMISSION)
        if number < requests:
            clients[number % sessions].send(permissions)
    print(f"{time.monotonic() - begin:.3f}")


main()
