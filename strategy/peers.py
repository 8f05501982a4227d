"""Waiting for the other workers to start, with a deadline and not without a word."""

import contextlib
import errno
import ipaddress
import socket
import threading
import time

import tensorflow as tf
from absl import logging

from tf_gc.server_watch import host_and_port

# Of waiting before a line in the log, and from one to the next: those of exchanges.
_QUIET_SECONDS = 30.0
_REPEAT_SECONDS = 300.0


def wait_for_peers(cluster_resolver, timeout_seconds):
    """Waits until every worker of the cluster has come this far.

    TensorFlow says nothing of a worker that does not start. This answers on
    this worker's own address, calls those of the others until they answer, and
    leaves the address to TensorFlow's server, which answers from then on.

    Args:
      cluster_resolver: a `tf.distribute.cluster_resolver.ClusterResolver`.
      timeout_seconds: how long to wait.

    Raises:
      tf.errors.DeadlineExceededError: some workers have not started in time.
    """
    tasks = _tasks(cluster_resolver.cluster_spec().as_dict())
    own = (cluster_resolver.task_type, cluster_resolver.task_id)
    missing = {task: address for task, address in tasks.items() if task != own}
    if own not in tasks or not missing:
        return  # an evaluator, say, which the others do not wait for either
    begin = time.monotonic()
    report = begin + _QUIET_SECONDS
    with _answering(tasks[own]):
        while missing := {t: a for t, a in missing.items() if not _answers(a)}:
            names = ", ".join(f"{t[0]} {t[1]} ({a})" for t, a in sorted(missing.items()))
            now = time.monotonic()
            if now > begin + timeout_seconds:
                raise tf.errors.DeadlineExceededError(
                    None,
                    None,
                    f"not started within {timeout_seconds:g} s "
                    f"(CommunicationOptions.timeout_seconds): {names}",
                )
            if now > report:
                logging.warning("tf_gc waits for %.0f s: not started: %s", now - begin, names)
                report = now + _REPEAT_SECONDS
            time.sleep(0.1)


def _tasks(cluster):
    return {
        (job, index): address
        for job in ("chief", "worker")
        for index, address in enumerate(cluster.get(job, []))
    }


def _answers(address):
    try:
        with socket.create_connection(host_and_port(address), timeout=1):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _answering(address):
    """Answers at this address until the context ends, which leaves it to whoever comes next."""
    ended = threading.Event()
    with _server(address) as server:
        thread = threading.Thread(target=_accept_all, args=(server, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)  # wakes accept, which close does not
            thread.join()


def _accept_all(server, ended):
    """Closes each connection at once: the server's queue takes only so many, then none answers."""
    while not ended.is_set():
        try:
            server.accept()[0].close()
        except OSError:  # it has been shut down; or an aborted connection, too many open files
            ended.wait(0.1)


def _server(address):
    """Returns a server at this worker's own address, or at all of the machine's.

    TensorFlow's server, which follows, listens at all of them in any case.
    """
    host, port = host_and_port(address)
    for family, ip in _resolved(host):
        # A machine's own name is often that of a loopback address, which is none for the others.
        if ipaddress.ip_address(ip).is_loopback and host not in (ip, "localhost"):
            continue
        try:
            return socket.create_server((ip, port), family=family, backlog=128)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # one that is translated on the way here
                raise
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=128, dualstack_ipv6=both)


def _resolved(host):
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror:  # a name that only others know
        return []
    return [(family, address[0]) for family, *_, address in found]
