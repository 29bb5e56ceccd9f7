"""The bounded store of past samples: policies (which slot), the epoch plan (when), the device tensors (what)."""
