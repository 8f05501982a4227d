"""The training of train.py on two workers of a Ray cluster: python ray_train.py"""

import os

import ray
from ray.train import ScalingConfig
from ray.train.tensorflow import TensorflowTrainer

HERE = os.path.dirname(os.path.abspath(__file__))


def train_on_worker() -> None:
    """Runs in each worker, whose TF_CONFIG TensorflowTrainer has set."""
    from train import train  # TensorFlow must not be imported before TF_CONFIG is there

    train()


if __name__ == "__main__":
    ray.init(runtime_env={"working_dir": HERE})  # which Ray sends to the workers, with train.py
    TensorflowTrainer(train_on_worker, scaling_config=ScalingConfig(num_workers=2)).fit()
