"""One of the processes: runs cases until the connection ends."""

from __future__ import annotations

import sys
import traceback
from multiprocessing.connection import Connection

from gloo_ranks import cases


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    cases.connect(int(sys.argv[2]))
    while True:
        try:
            case, rank, size, args = connection.recv()
        except EOFError:
            return
        try:
            reply = True, case(rank, size, *args)
        except BaseException:
            reply = False, traceback.format_exc()
        connection.send(reply)


if __name__ == "__main__":
    main()
