"""The node."""

from alpamayo_ros.early_signals import end_at_once, is_program

if is_program():
    end_at_once(lambda _: 0)  # until run (process.py) takes over; the node's end by a signal is an orderly one
