"""The engine: the learner, its step, evaluation, checkpoints. It imports with torch, NumPy and safetensors alone."""
