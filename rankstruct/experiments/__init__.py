"""Experiments: evaluation of runs, benchmarks, protocols."""
