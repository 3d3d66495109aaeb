"""Data for shared models that have none beside them: inputs made here, outputs by ONNX Runtime.

    model_inputs.py MODELS NAME FOLDER        FOLDER/test_data_set_0 (and a copy of the model) of MODELS/NAME
"""
import sys
from pathlib import Path

import numpy as np
import onnx

from ort_case import write

ATTENTION = {"input": (2, 6, 768), "weight": (768, 2304), "bias": (2304,), "past": (2, 2, 12, 3, 64)}
SHAPES = {"ort-attention-mask1d": ATTENTION, "ort-gpt2-attention-past": ATTENTION, "ortext-superres": {"input": (2, 1, 224, 224)}}


def feeds_of(name):
    rng = np.random.default_rng(3)
    feeds = {n: (rng.standard_normal(s) / (20 if n == "weight" else 1)).astype(np.float32) for n, s in SHAPES[name].items()}
    if name != "ortext-superres":
        feeds["mask_index"] = np.array([6, 4], np.int32)
    return feeds


def make(models, name, folder):
    """Returns the data set."""
    model = onnx.load(Path(models) / name / "model.onnx")
    fed = {i.name for i in model.graph.input} - {t.name for t in model.graph.initializer}
    write(folder, model, {n: a for n, a in feeds_of(name).items() if n in fed})
    return Path(folder) / "test_data_set_0"


if __name__ == "__main__":
    make(*sys.argv[1:])
