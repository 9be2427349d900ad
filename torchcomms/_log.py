"""What the engine logs, for the module `logging`."""

from __future__ import annotations

import atexit
import logging
import threading

_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": 5,
}

_lock = threading.Lock()
_thread: threading.Thread | None = None


def use_python_logging() -> None:
    """Gives what the engine logs from now on to the module `logging`, in a thread of its own.

    The loggers are `torchcomms.transport` and so on, by component; a record has the attribute
    `rank`, which is None until it is known, and its time is that of the engine. TORCHCOMM_LOG says
    first what is logged at all (default: warnings). Idempotent. TORCHCOMM_LOG_TO=python calls it.
    What was logged before the interpreter ends is handed over; children of a fork write to stderr.
    """
    from torchcomms._comms import _open_log_queue

    global _thread
    with _lock:
        if _thread is not None and _thread.is_alive():
            return
        logging.addLevelName(5, "TRACE")
        _open_log_queue()
        _thread = threading.Thread(target=_hand_over, name="torchcomms-log", daemon=True)
        _thread.start()
        atexit.register(_end)


def _hand_over() -> None:
    from torchcomms._comms import _next_logs

    while rows := _next_logs():
        for seconds, level, component, rank, text in rows:
            logger = logging.getLogger(f"torchcomms.{component}")
            number = _LEVELS[level]
            if not logger.isEnabledFor(number):
                continue
            record = logger.makeRecord(
                logger.name, number, "ctran", 0, text, (), None, extra={"rank": rank}
            )
            record.created = seconds
            record.msecs = seconds % 1 * 1000
            logger.handle(record)


def _end() -> None:
    from torchcomms._comms import _close_log_queue

    _close_log_queue()
    if _thread is not None:
        _thread.join()
