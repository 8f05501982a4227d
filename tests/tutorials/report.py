"""What the runner reads of each process. No part of the tutorials."""

import hashlib
import json

import mnist_setup
import numpy as np


def report(model, **others):
    """Prints, on a line of its own, the model's accuracy, what its weights are, and others."""
    images, labels = mnist_setup.load("t10k")
    predicted = np.concatenate(
        [np.argmax(model(part), axis=1) for part in np.split(images, 10)]  # not by the strategy
    )
    weights = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
    found = {
        "accuracy": float(np.mean(predicted == labels)),
        "weights": hashlib.sha256(weights).hexdigest(),
        **others,
    }
    print("REPORT " + json.dumps(found), flush=True)
