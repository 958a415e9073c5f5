"""Command-line programs."""

from alpamayo_ros.early_signals import end_at_once, is_program

if is_program():
    end_at_once(lambda number: 128 + number)  # until run_command (command.py) takes over
