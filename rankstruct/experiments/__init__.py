"""The papers' experiments: plans, baselines, tables and plots."""
