"""What bench.py and compare_cpu.py share: start libraries, time them in turns, report."""
