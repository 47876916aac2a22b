"""A model takes raw features wherever it was trained, saved and loaded: runs, checkpoints, estimators, for every preparation."""

import contextlib
import io
import json
import pickle

import joblib
import numpy as np
import pytest
import torch
import yaml

import rankstruct as rs
from rankstruct.cli import main
from rankstruct.data import RankingData, Source, fit_preparation, read_lists, read_scores, write_svmlight
from rankstruct.preparation import KNOWN


def draw(seed, lists=12):
    rng = np.random.default_rng(seed)
    qid = np.sort(rng.integers(0, lists, 70))
    features = (rng.standard_normal((70, 3)) * 10.0 ** rng.integers(-2, 3, (70, 3))).astype(np.float32)
    features[:, 2] = rng.integers(0, 3, 70)
    return RankingData.from_arrays(features, (features[:, 0] + rng.standard_normal(70) > 1).astype(int), qid)
