"""Faults short of death: lost words, cut lines, full disks, odd clocks, stale and rival workers."""
