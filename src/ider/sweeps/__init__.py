"""Many runs: seeds x recipes, side by side in processes of this machine."""
