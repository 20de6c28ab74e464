"""Faults short of death: lost notifications, cut connections, full disks, odd clocks, stale and
rival workers.
"""
