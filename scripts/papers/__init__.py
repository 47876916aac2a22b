"""The papers' experiments: plans, baselines, tables and plots; Gaussian processes and ordinal perceptrons of ratings."""
