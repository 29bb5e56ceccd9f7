"""Every test runs on one CPU thread, as the runs it compares with do."""

import torch

torch.set_num_threads(1)
