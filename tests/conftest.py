"""Every test runs on one CPU thread, as the runs it compares with do, and leaves the threads of its neighbours alone."""

import torch

torch.set_num_threads(1)
