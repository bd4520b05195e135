"""Processes that share one port: one that is killed is begun anew, and what connects meanwhile waits in the queue."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import sys
import threading
import time
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from glassformer.config import ServeConfig
from glassformer.errors import GlassformerError, UserError
from glassformer.processes import end_with_parent
from glassformer.serve.server import serve, start_logging

__all__ = ["listening", "supervise"]

LOGGER = logging.getLogger("glassformer.serve")
PAUSE_S = 0.2  # between two starts, so that a worker that is killed at once does not busy the machine
BACKLOG = 2048  # connections that wait for a worker


def listening(config: ServeConfig) -> socket.socket:
    """A socket at the address.

    Raises:
        UserError: It cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family, backlog=BACKLOG)
    except OSError as error:
        what = f"host={config.host} port={config.port} cannot be listened on ({error.strerror})."
        raise UserError(what, "A free port of this machine was expected.", "Choose another --port.") from error


def supervise(config: ServeConfig, folders: dict[str, Path]) -> int:
    """Keeps `config.workers` processes running, each with the models, until SIGTERM or SIGINT; returns the status.

    A worker that is killed (kill -9, no memory, a crash) is begun anew. One that ends by itself with an error, such
    as a model that cannot be read, ends all. The packages are imported once, in a process that the workers are forked
    from, so that a new one needs only its models.
    """
    start_logging()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["glassformer.serve.server"])
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopping.set())
    workers: list[BaseProcess] = []
    status = 0
    with TemporaryDirectory(prefix="glassformer-") as downloads:
        with listening(config) as listener:
            while not stopping.is_set():
                while len(workers) < config.workers:
                    worker = context.Process(target=run_worker, args=(config, folders, listener, Path(downloads)))
                    worker.start()
                    LOGGER.info("worker", extra={"pid": worker.pid})
                    workers.append(worker)
                connection.wait([worker.sentinel for worker in workers], timeout=PAUSE_S)
                for ended in [worker for worker in workers if worker.exitcode is not None]:
                    workers.remove(ended)
                    status = ended.exitcode or 0
                    if status >= 0 and not stopping.is_set():
                        stopping.set()
                    elif not stopping.is_set():
                        LOGGER.error("a worker was killed; another one is begun", extra={"signal": -status})
                        time.sleep(PAUSE_S)
        _end(workers, config.drain_s + 5)
    return max(status, 0)


def _end(workers: list[BaseProcess], within_s: float) -> None:
    """Lets processes end what they have, and kills those that take too long."""
    for left in workers:
        left.terminate()
    end = time.monotonic() + within_s
    for left in workers:
        left.join(max(0.0, end - time.monotonic()))
        left.kill()


def run_worker(config: ServeConfig, folders: dict[str, Path], listener: socket.socket, downloads: Path) -> None:
    """One process; it ends with the one that watches over it."""
    end_with_parent()
    try:
        serve(config, folders, listener, downloads)
    except GlassformerError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
