"""Rival queues on the same PostgreSQL as Holdfast, in the same run. See `python -m tools.bench.peers --help`.

requirements.txt, package-lock.json  what is measured, pinned; install.py puts it into var/bench-peers
drivers/                             a program for each queue, and the protocol that all of them speak
rivals.py                            which there are, and their settings
contest.py                           one measurement, and all of them in turns
bars.py                              what comes of it for `make bench`
"""
